"""Locks on files: held by one process, freed by the kernel when that process ends, however it ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def try_lock(path: Path) -> int | None:
    """Lock ``path``, made when missing; return what to close to free it, None when another has it.

    Raises OSError when the file cannot be opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        lock_file(descriptor)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def lock_file(descriptor: int) -> None:
    """Lock an open file for this process; raises OSError at once when another has it."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
