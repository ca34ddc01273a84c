"""The kernel's names for permissions, by the version of its Landlock (its ABI). Pure.

The numbers are those of the kernel's include/uapi/linux/landlock.h. Rights and scopes that a kernel does not
know yet are left out, and `missing` says in words what that leaves open.
"""

from __future__ import annotations

from enum import IntFlag
from typing import assert_never

from daisychain.trainer.sandbox.policy import Access


class Right(IntFlag):
    """Rights on files."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15
    RESOLVE_UNIX = 1 << 16


SCOPE_ABSTRACT_SOCKETS, SCOPE_SIGNALS = 1 << 0, 1 << 1
"""Bits of `scopes`: named sockets without a file, and signals, stay within the confined processes."""

_FIRST = Right((1 << 13) - 1)
SCOPES_SINCE, RESOLVE_UNIX_SINCE = 6, 9
_SINCE = {2: Right.REFER, 3: Right.TRUNCATE, 5: Right.IOCTL_DEV, RESOLVE_UNIX_SINCE: Right.RESOLVE_UNIX}

_ON_FILES = Right.EXECUTE | Right.WRITE_FILE | Right.READ_FILE | Right.TRUNCATE | Right.IOCTL_DEV
_READ = Right.READ_FILE | Right.READ_DIR | Right.EXECUTE
_DEVICE = Right.READ_FILE | Right.READ_DIR | Right.WRITE_FILE | Right.TRUNCATE | Right.IOCTL_DEV
_NEVER = Right.MAKE_CHAR | Right.MAKE_BLOCK | Right.IOCTL_DEV
"""Not even in its own folders: a device made there would be another way to the disk."""


def handled(abi: int) -> Right:
    """Return every right that is refused unless permitted."""
    rights = _FIRST
    for since, right in _SINCE.items():
        if abi >= since:
            rights |= right
    return rights


def scopes(abi: int) -> int:
    """Return what else is refused: reaching out by abstract sockets and by signals."""
    return SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS if abi >= SCOPES_SINCE else 0


def rights_of(access: Access, abi: int, folder: bool) -> Right:
    """Return what ``access`` to a folder, or to a single file, permits."""
    match access:
        case Access.LIST:
            wanted = Right.READ_DIR
        case Access.READ:
            wanted = _READ
        case Access.DEVICE:
            wanted = _DEVICE
        case Access.WRITE:
            wanted = handled(abi) & ~_NEVER
        case _:
            assert_never(access)
    return wanted & handled(abi) & (~Right(0) if folder else _ON_FILES)


def missing(abi: int) -> tuple[str, ...]:
    """Return in words what this kernel cannot keep from job code; empty when nothing is known."""
    if abi < 1:
        return ("everything: this kernel has no Landlock",)
    gaps = []
    if abi < 3:
        gaps.append("emptying a file of yours that it knows by name (Linux 6.2 stops that)")
    if abi < SCOPES_SINCE:
        gaps.append("signals to your other processes, the agent among them (Linux 6.12 stops that)")
    if abi < RESOLVE_UNIX_SINCE:
        gaps.append(
            "other programs' sockets in the file system, such as Docker's or a session bus (Linux 7.1)"
        )
    return tuple(gaps)
