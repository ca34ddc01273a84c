"""A CPU quota for a tree of processes: a control group of the test's own, version 1 or 2.

The period is 5 ms, the shortest that is useful: a quota then acts as a slower core, not as long stalls.
"""

from __future__ import annotations

import contextlib
import os
import signal
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.waiting import until

MOUNT = Path("/sys/fs/cgroup")
PERIOD_US = 5_000
EMPTY_S = 10.0

PRECEDENCE = 50
"""The group's weight against one of the usual weight: the quota bounds it, not who else is busy here."""

ENTER = 'echo $$ > "$0" && exec "$@"'
"""What a shell runs to enter the group of $0 and become the command: its children are born inside."""


@dataclass(frozen=True)
class CpuGroup:
    """A control group that bounds the CPU time of all processes inside, in sum."""

    folder: Path

    def starting(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs ``command`` inside, under the same process id."""
        return ["/bin/sh", "-c", ENTER, str(self.folder / "cgroup.procs"), *command]

    def pids(self) -> list[int]:
        return [int(line) for line in (self.folder / "cgroup.procs").read_text().split()]

    def throttled(self) -> int:
        """Return how often the quota has stopped those inside."""
        numbers = dict(line.split() for line in (self.folder / "cpu.stat").read_text().splitlines())
        return int(numbers["nr_throttled"])


@contextlib.contextmanager
def cpu_group(cpus: float, period_us: int = PERIOD_US) -> Iterator[CpuGroup]:
    """A group of ``cpus`` CPUs; skips the test where none can be made.

    Whoever is still inside at the end is killed, so that the group can be removed.
    """
    try:
        group = CpuGroup(_make(round(cpus * period_us), period_us))
    except OSError as error:
        pytest.skip(f"no CPU quotas here (they need root and a writable cpu control group): {error}")
    try:
        yield group
    finally:
        for pid in group.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not group.pids(), EMPTY_S, f"{group.folder} is not empty")
        group.folder.rmdir()


def _make(quota_us: int, period_us: int) -> Path:
    """Return the folder of a new group. Raises `OSError` where that is impossible."""
    name = f"daisychain-test-{uuid.uuid4().hex[:8]}"
    second = (MOUNT / "cgroup.controllers").exists()
    if second:
        if "cpu" not in (MOUNT / "cgroup.subtree_control").read_text().split():
            (MOUNT / "cgroup.subtree_control").write_text("+cpu")
        files = {"cpu.max": f"{quota_us} {period_us}", "cpu.weight": str(100 * PRECEDENCE)}
    else:
        files = {
            "cpu.cfs_period_us": str(period_us),
            "cpu.cfs_quota_us": str(quota_us),
            "cpu.shares": str(1024 * PRECEDENCE),
        }
    folder = (MOUNT if second else _version_1()) / name
    folder.mkdir()
    try:
        for file, text in files.items():
            (folder / file).write_text(text)
    except OSError:
        folder.rmdir()
        raise
    return folder


def _version_1() -> Path:
    """Return where version 1's cpu controller is mounted."""
    for name in ("cpu", "cpu,cpuacct"):
        if (MOUNT / name / "cgroup.procs").exists():
            return MOUNT / name
    raise FileNotFoundError(f"no cpu controller under {MOUNT}")
