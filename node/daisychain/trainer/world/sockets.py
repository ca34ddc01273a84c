"""The connections that a process group opened: seen, ended from outside, and kept from being reset early.

gloo has no abort of its own, and loses track of a send whose connection turns out dead while it writes: such
a call then waits for its timeout (seen in one abort of six under steady traffic). So a world is ended by
shutting only the *reading* side: gloo reads the end of the stream, fails whatever is under way, and closes
its descriptor. A duplicate held here keeps the connection itself open, so that no reset reaches a
peer which is still writing; the peer's own agent ends its side in the same way.

The listening socket is never touched: shutting it ends the whole process.

A process that the user's code forks inherits them all, and would keep them open when its parent dies: no
reset would reach the peers. `Connections.let_go_in_child` closes them there.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import sys
from collections.abc import Iterable
from ipaddress import ip_address

IN_FLIGHT_BYTES = 256 << 10
"""What may wait in the kernel for one connection's way out. The network's queues hold no more of a gradient
than this either, so that heartbeats behind it are late by fractions of a second on slow links (0.4 s at
5 Mbit/s), not by what a router can store. At 50 ms of round trip it still allows 40 Mbit/s."""

_LAST_DATA_AT = 52
"""Where Linux's struct tcp_info holds the milliseconds since data last came."""

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


class Connections:
    """A group's connections to its peers, by a duplicate of each."""

    def __init__(self, owned: Iterable[OpenSocket], peers: frozenset[str]) -> None:
        """Find the connections to ``peers`` (plain hosts) among the sockets ``owned``; leave the others."""
        self._originals: list[OpenSocket] = []
        self._copies: list[socket.socket] = []
        for fd, inode in owned:
            copy = _connected_copy(fd, inode, peers)
            if copy is not None:
                copy.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, IN_FLIGHT_BYTES // 2)  # it doubles that
                self._originals.append((fd, inode))
                self._copies.append(copy)

    def __len__(self) -> int:
        return len(self._copies)

    def lost(self) -> int:
        """Return how many of them gloo has closed: it does so when a peer is gone, or after `shut`."""
        return sum(_socket_inode(fd) != inode for fd, inode in self._originals)

    def quiet_s(self) -> float | None:
        """Return the seconds since data last came over any of them; None where the system does not tell."""
        if sys.platform != "linux":
            return None
        told = [_since_data_s(copy) for copy in self._copies]
        return min(told, default=None)

    def shut(self) -> None:
        """End the reading side of each: gloo fails what is under way. Idempotent, never raises."""
        for copy in self._copies:
            try:
                copy.shutdown(socket.SHUT_RD)
            except OSError:
                continue  # it ended by itself

    def close(self) -> None:
        """Close the duplicates; peers that still use the connections find them reset."""
        copies, self._copies = self._copies, []
        for copy in copies:
            copy.close()

    def let_go_in_child(self) -> None:
        """Close the connections in a forked child: they stay open in its parent, and end with it."""
        for fd, inode in self._originals:
            if _socket_inode(fd) == inode:
                os.close(fd)
        for copy in self._copies:
            copy.close()


def plain_host(host: str) -> str:
    """Return a numeric address without scope and without an IPv4 address's IPv6 wrapping."""
    address = ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _since_data_s(connection: socket.socket) -> float:
    facts = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_DATA_AT + 4)
    milliseconds: int = struct.unpack_from("I", facts, _LAST_DATA_AT)[0]
    return milliseconds / 1000


def _connected_copy(fd: int, inode: int, peers: frozenset[str]) -> socket.socket | None:
    """Return a duplicate of ``fd`` if it still is that socket and leads to one of ``peers``."""
    try:
        copy_fd = os.dup(fd)
    except OSError:
        return None
    if _socket_inode(copy_fd) != inode:
        os.close(copy_fd)
        return None
    copy = socket.socket(fileno=copy_fd)
    try:
        if copy.family in (socket.AF_INET, socket.AF_INET6) and plain_host(copy.getpeername()[0]) in peers:
            return copy
    except OSError:
        pass  # a listener, or a connection that ended by itself
    copy.close()
    return None


def _socket_inode(fd: int) -> int | None:
    """Return the inode of an open socket; None for anything else."""
    try:
        facts = os.fstat(fd)
    except OSError:
        return None
    return facts.st_ino if stat.S_ISSOCK(facts.st_mode) else None
