"""Who uses a cache entry: many may read it, and nobody removes it meanwhile.

The kernel ends a lease with its process.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

LEASE_FILE = "lease"


class Lease:
    """A hold on a folder of the cache; freed by `close`, and by the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def take(cls, folder: Path, alone: bool = False) -> Lease | None:
        """Return a hold on ``folder``, shared or ``alone``; None when there is none to be had.

        It is had when the folder is still there: one that is being removed is not. Raises OSError.
        """
        path = folder / LEASE_FILE
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not _lock(descriptor, alone) or not _is_still(path, descriptor):
            os.close(descriptor)
            return None
        return cls(descriptor)

    def touch(self) -> None:
        """Note that it is used now: what was not for the longest time is removed first."""
        with contextlib.suppress(OSError):
            os.utime(self._descriptor)

    def close(self) -> None:
        """Give the hold up."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()


def _lock(descriptor: int, alone: bool) -> bool:
    if sys.platform == "win32":  # no training there
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        there, ours = path.stat(), os.fstat(descriptor)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
