"""Files that are either whole or absent: atomic writes, bounded reads, damaged files set aside."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import secrets
import stat
from pathlib import Path
from typing import BinaryIO

from daisychain.errors import StorageError

ASIDE_MAX = 100
"""Most damaged files of one name that are kept."""


def write_atomically(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Make ``path`` hold ``data``: a reader, or a power cut, meets the old file or the new one.

    The data are on the disk when this returns (file and folder are synced). Raises `StorageError`.
    """
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(path)
        except BaseException:
            scratch.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written: {error.strerror or error}",
            "Check the disk's free space and the folder's permissions.",
        ) from error


def remove_scratch(path: Path) -> None:
    """Remove what `write_atomically` left beside ``path`` when it was killed; for whoever alone writes it."""
    for scratch in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 8}.new"):
        with contextlib.suppress(OSError):  # it is only in the way
            scratch.unlink()


def sync_folder(folder: Path) -> None:
    """Make renames in ``folder`` durable, where the platform lets a folder be synced."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # some network file systems refuse; the rename stands
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_bounded(path: Path, max_bytes: int) -> bytes | None:
    """Return the file's bytes, or None when there is no such file.

    Raises `StorageError` when it cannot be read or is over ``max_bytes``: what this node wrote is
    smaller, so a larger file is not its own.
    """
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(
            f"{path} cannot be read: {error.strerror or error}", "Check the file's permissions and the disk."
        ) from error
    if len(data) > max_bytes:
        raise StorageError(f"{path} is over {max_bytes} bytes, so this node did not write it")
    return data


def open_regular(path: Path, flags: int) -> BinaryIO:
    """Open a file where job code may write, for reading or appending as ``flags`` of os.open say.

    A link that it left in the file's place is not followed (it may name the key), a pipe is not waited for.
    Raises OSError.
    """
    safely = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags | safely | os.O_CLOEXEC, 0o644)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return os.fdopen(descriptor, "rb" if flags & os.O_ACCMODE == os.O_RDONLY else "ab")
    except BaseException:
        os.close(descriptor)
        raise


def set_aside(path: Path) -> Path:
    """Rename a damaged file to ``<name>.damaged-<n>`` and return where it went: nothing is lost.

    Raises `StorageError` when it cannot be moved.
    """
    for number in range(1, ASIDE_MAX + 1):
        target = path.with_name(f"{path.name}.damaged-{number}")
        if target.exists():
            continue
        try:
            path.rename(target)
        except OSError as error:
            raise StorageError(f"{path} is damaged and cannot be moved aside: {error}") from error
        return target
    raise StorageError(
        f"{path} is damaged, as {ASIDE_MAX} before it were", "Check the disk; it loses what is written to it."
    )


def make_folder(path: Path, mode: int = 0o700) -> None:
    """Make ``path`` (and its parents) when missing; raises `StorageError`."""
    try:
        path.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"the folder {path} cannot be made: {error.strerror or error}",
            "Choose another folder, or give this user the right to write there.",
        ) from error
