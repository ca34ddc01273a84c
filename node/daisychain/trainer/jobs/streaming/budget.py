"""The cache's size: what was not used for the longest time goes first, what is in use never."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import BinaryIO

from daisychain.errors import JobError
from daisychain.trainer.jobs.streaming.lease import LEASE_FILE, Lease

log = logging.getLogger(__name__)

STAGED, GOING = ".new-", ".gone-"
"""How folders begin that are being written, or removed: nobody uses them."""

ENTRIES_MAX = 10_000
"""Most folders looked at: bounds the time of a look."""


class CacheBudget:
    """The bytes that one cache folder may hold; made by whoever writes."""

    def __init__(self, folder: Path, max_bytes: int, where: str) -> None:
        """``max_bytes``: see `DataRoom`; ``where``: whose data it is, for errors."""
        self._folder = folder
        self._max_bytes = max_bytes
        self._where = where
        self._scratch_bytes = 0

    def open(self) -> BinaryIO:
        """Return a new empty file without a name: it vanishes with the process."""
        return tempfile.TemporaryFile(dir=self._folder, buffering=0)

    def take(self, size_bytes: int) -> None:
        """Claim so many bytes for a file of `open`; raises `JobError` when there is no room."""
        self.make_room(size_bytes)
        self._scratch_bytes += size_bytes

    def give_back(self) -> None:
        """Note that the files of `open` are closed."""
        self._scratch_bytes = 0

    def make_room(self, size_bytes: int) -> None:
        """Remove unused entries until ``size_bytes`` more fit; raises `JobError` when they do not."""
        remove_leftovers(self._folder)
        sizes = {entry: size_of(entry) for entry in entries(self._folder)}
        held = sum(sizes.values()) + self._scratch_bytes
        most = self._max_bytes or (held + shutil.disk_usage(self._folder).free) // 2
        for entry in sorted(sizes, key=_last_used):
            if held + size_bytes <= most:
                return
            if not entry.name.startswith(STAGED) and remove_unused(entry):
                log.info("removed a converted table (%s MiB) to make room", sizes[entry] >> 20)
                held -= sizes[entry]
        if held + size_bytes > most:
            raise JobError(
                self._where,
                f"its rows do not fit into memory, and converted they would take {size_bytes} bytes more"
                f" in {self._folder}, where {held} are in use and {most} allowed",
                "Make room on the disk, set --cache-max-bytes (cache_max_bytes) higher,"
                " or leave columns out with 'ignore'.",
            )


def entries(folder: Path) -> list[Path]:
    """Return the folders in the cache, those that are being written too."""
    found = []
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as listed:
        for entry in listed:
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(GOING):
                found.append(Path(entry.path))
            if len(found) == ENTRIES_MAX:
                break
    return found


def size_of(entry: Path) -> int:
    """Return the bytes of the files in one folder."""
    total = 0
    with contextlib.suppress(OSError), os.scandir(entry) as listed:
        for file in listed:
            with contextlib.suppress(OSError):
                total += file.stat(follow_symlinks=False).st_size
    return total


def remove_unused(entry: Path) -> bool:
    """Remove ``entry`` unless somebody holds it; return whether it is gone."""
    lease = Lease.take(entry, alone=True)
    if lease is None:
        return not entry.exists()
    try:
        going = entry.with_name(f"{GOING}{entry.name.lstrip('.')}")
        entry.rename(going)
        shutil.rmtree(going, ignore_errors=True)
    except OSError as error:
        log.warning("%s cannot be removed: %s", entry, error)
        return False
    finally:
        lease.close()
    return True


def remove_leftovers(folder: Path) -> None:
    """Remove what processes that died left half written or half removed."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as listed:
        found = [Path(entry.path) for entry in listed if entry.name.startswith((STAGED, GOING))]
        for path in found:
            if path.name.startswith(GOING):
                shutil.rmtree(path, ignore_errors=True)
            else:
                remove_unused(path)


def _last_used(entry: Path) -> float:
    try:
        return (entry / LEASE_FILE).stat().st_mtime
    except OSError:
        return 0.0
