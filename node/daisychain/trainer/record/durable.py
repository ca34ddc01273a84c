"""Bytes that are on the disk, not only on their way to it."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def sync(path: Path) -> None:
    """Make a file's content, or the renames in a folder, durable; raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def is_full(error: OSError) -> bool:
    """Whether the disk, the quota or the process's own bound has no room."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def remedy(error: OSError) -> str:
    """Return what a person does about ``error``, met in writing: room is not all that may lack."""
    if is_full(error):
        return "Make room on its disk."
    return "See that its folder is there, can be written by this user, and the disk is sound."
