"""A memory limit for a tree of processes: a control group of the test's own, version 1 or 2."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.cgroups import ENTER, MOUNT, PREFIX, CpuGroup, remove_group
from support.owners import mark


@dataclass(frozen=True)
class MemoryGroup:
    """A control group that bounds the memory of all processes inside, their page cache included."""

    folder: Path

    def starting(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs ``command`` inside, under the same process id."""
        return ["/bin/sh", "-c", ENTER, str(self.folder / "cgroup.procs"), *command]

    def peak_bytes(self) -> int:
        """Return the most memory that was ever in use at once."""
        for name in ("memory.max_usage_in_bytes", "memory.peak"):
            if (self.folder / name).exists():
                return int((self.folder / name).read_text())
        raise FileNotFoundError(f"{self.folder} tells no peak")


@contextlib.contextmanager
def memory_group(limit_bytes: int) -> Iterator[MemoryGroup]:
    """A group of so much memory and no swap; skips the test where none can be made."""
    second = (MOUNT / "cgroup.controllers").exists()
    folder = (MOUNT if second else MOUNT / "memory") / f"{PREFIX}{mark()}.{uuid.uuid4().hex[:8]}"
    limits = ("memory.max", "memory.swap.max") if second else ("memory.limit_in_bytes", None)
    try:
        folder.mkdir()
        (folder / limits[0]).write_text(str(limit_bytes))
        if limits[1] is not None and (folder / limits[1]).exists():
            (folder / limits[1]).write_text("0")
    except OSError as error:
        import pytest

        with contextlib.suppress(OSError):
            folder.rmdir()
        pytest.skip(f"no memory limits here (they need root and a writable memory control group): {error}")
    try:
        yield MemoryGroup(folder)
    finally:
        remove_group(CpuGroup(folder))
