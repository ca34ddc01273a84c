"""The connections that a process group opened, and how to end them from outside.

gloo has no abort of its own. Shutting its connected sockets ends every stuck call within
milliseconds, on this rank and on its neighbours. The listening socket must stay: shutting it ends
the whole process.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterable
from ipaddress import ip_address

OpenSocket = tuple[int, int]
"""A file descriptor and the inode behind it: a number that was closed and reused is told apart."""


def open_sockets() -> frozenset[OpenSocket]:
    """Return the sockets that this process holds open."""
    found = set()
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 - names only, and the listing's own fd is among them
        inode = _socket_inode(int(name))
        if inode is not None:
            found.add((int(name), inode))
    return frozenset(found)


def shut(sockets: Iterable[OpenSocket], peers: frozenset[str]) -> int:
    """Shut the connections among ``sockets`` whose other end is one of ``peers``; return how many.

    Works on duplicates, so that the owner's descriptors stay valid; sockets closed meanwhile,
    listeners and connections to others are left alone. Never raises.
    """
    count = 0
    for fd, inode in sockets:
        try:
            copy_fd = os.dup(fd)
        except OSError:
            continue
        if _socket_inode(copy_fd) != inode:
            os.close(copy_fd)
            continue
        with socket.socket(fileno=copy_fd) as copy:
            try:
                if copy.family not in (socket.AF_INET, socket.AF_INET6):
                    continue
                if plain_host(copy.getpeername()[0]) in peers:
                    copy.shutdown(socket.SHUT_RDWR)
                    count += 1
            except OSError:  # a listener, or a connection that ended by itself
                continue
    return count


def plain_host(host: str) -> str:
    """Return a numeric address without scope and without an IPv4 address's IPv6 wrapping."""
    address = ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _socket_inode(fd: int) -> int | None:
    """Return the inode of an open socket; None for anything else."""
    try:
        facts = os.fstat(fd)
    except OSError:
        return None
    return facts.st_ino if stat.S_ISSOCK(facts.st_mode) else None
