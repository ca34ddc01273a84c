"""Files below a folder, reached part by part through descriptors: never through a link."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

FILE_MODE, FOLDER_MODE = 0o644, 0o755
"""Of what is placed: plain, never set-user-id, readable for whoever may read the jobs folder."""


@contextlib.contextmanager
def opened(folder: Path, name: str) -> Iterator[int]:
    """Yield a descriptor of the plain file ``name`` below ``folder``, to be read.

    Each part of the name is opened from the one before: whoever swaps a folder for a link meanwhile gains
    nothing. Raises OSError when a part is missing, a link, or no plain file.
    """
    *folders, last = name.split("/")
    with folder_below(folder, folders) as here:
        file = os.open(last, _reading() | os.O_NONBLOCK, dir_fd=here)  # a pipe would wait for its writer
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "it is not a plain file", name)
        yield file
    finally:
        os.close(file)


@contextlib.contextmanager
def writable(folder: Path, name: str) -> Iterator[int]:
    """Yield a descriptor of the file ``name`` below ``folder``, to be written and read; made when missing.

    What stands in its way there and is not a plain file of this user with this one name (a link, a device,
    another file's second name) is removed first. Raises OSError.
    """
    *folders, last = name.split("/")
    with folder_below(folder, folders, make=True) as here:
        file = _make_file(here, last)
    try:
        yield file
    finally:
        os.close(file)


@contextlib.contextmanager
def folder_below(folder: Path, parts: Sequence[str], make: bool = False) -> Iterator[int]:
    """Yield a descriptor of the folder that ``parts`` lead to below ``folder``.

    With ``make`` the missing ones are made, and what stands in their way is removed. Raises OSError.
    """
    here = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        for part in parts:
            below = _make_folder(here, part) if make else _open_folder(here, part)
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


def remove(name: str, folder: int) -> None:
    """Remove whatever has this name in the open ``folder``, and nothing that a link points to."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            try:
                shutil.rmtree(name, dir_fd=folder)
            except RecursionError:
                raise OSError(errno.ELOOP, "folders lie too deep in it to be removed", name) from None
        else:
            os.unlink(name, dir_fd=folder)


def is_own_file(facts: os.stat_result) -> bool:
    """Whether it is a plain file with one name only, so that writing to it writes nowhere else."""
    return stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1


def _reading() -> int:
    return os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW


def _open_folder(here: int, name: str) -> int:
    return os.open(name, _reading() | os.O_DIRECTORY, dir_fd=here)


def _make_folder(here: int, name: str) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, FOLDER_MODE, dir_fd=here)
    try:
        return _open_folder(here, name)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
    remove(name, here)
    os.mkdir(name, FOLDER_MODE, dir_fd=here)
    return _open_folder(here, name)


def _make_file(here: int, name: str) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    with contextlib.suppress(FileNotFoundError):
        facts = os.stat(name, dir_fd=here, follow_symlinks=False)
        if is_own_file(facts):
            file = os.open(name, flags | os.O_NONBLOCK, dir_fd=here)
            if is_own_file(os.fstat(file)):
                return file
            os.close(file)
        remove(name, here)
    return os.open(name, flags | os.O_CREAT | os.O_EXCL, FILE_MODE, dir_fd=here)
