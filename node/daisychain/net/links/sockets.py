"""TCP sockets as control connections want them: prompt, and ended by the kernel when nobody answers."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import socket
import sys

from daisychain.core.ids import Address
from daisychain.errors import NetworkError

_KEEPALIVE_PROBES = 3


_URGENT_TOS = 0xC0
"""DSCP CS6, network control: WiFi's access points and many routers let it pass before bulk data."""

_URGENT_PRIORITY = 6
"""The highest that needs no rights: this machine's own queue lets it pass first."""

_BULK_TOS = 0x20
"""DSCP CS1, "background": whoever sorts packets lets all others pass first."""

_BULK_PRIORITY = 1
"""This machine's own queue takes it for bulk."""

_TCP_THIN_LINEAR_TIMEOUTS = 16
"""Linux: a message that is lost is sent again at even intervals, not at doubling ones."""


def tune(connection: socket.socket, kernel_silence_s: int) -> None:
    """Send small messages at once and first, and let the kernel end a connection silent for so long.

    Options that this platform lacks are left alone: heartbeats notice a silent peer sooner anyway.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _prefer(connection)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    interval_s = max(1, kernel_silence_s // (_KEEPALIVE_PROBES + 1))
    for name, value in (
        ("TCP_KEEPIDLE", interval_s),
        ("TCP_KEEPINTVL", interval_s),
        ("TCP_KEEPCNT", _KEEPALIVE_PROBES),
        ("TCP_USER_TIMEOUT", kernel_silence_s * 1000),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def _prefer(connection: socket.socket) -> None:
    """Have the control traffic pass before gradients wherever somebody sorts packets."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):  # a network that forbids it is no worse off
        if connection.family == socket.AF_INET:
            connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, _URGENT_TOS)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, _URGENT_PRIORITY)  # IP_TOS sets another
        connection.setsockopt(socket.IPPROTO_TCP, _TCP_THIN_LINEAR_TIMEOUTS, 1)


def give_way(connection: socket.socket, buffer_bytes: int) -> None:
    """Mark a tuned connection as bulk that passes after all else, and let the kernel hold little of it."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):
        if connection.family == socket.AF_INET:
            connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, _BULK_TOS)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, _BULK_PRIORITY)


def listen(host: str, port: int, backlog: int) -> socket.socket:
    """Return a non-blocking listener on the numeric address ``host``; port 0 takes a free one.

    Raises `NetworkError` when the address is no longer ours or the port is taken.
    """
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    except ValueError:
        raise NetworkError(
            f"{host!r} is no numeric address", "Give the control port an address, not a name."
        ) from None
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(backlog)
    except OSError as error:
        listener.close()
        remedy = {
            errno.EADDRINUSE: "Another program (or another node) listens there: choose another port.",
            errno.EADDRNOTAVAIL: "The interface has lost this address: see `daisychain doctor`.",
            errno.EACCES: "Ports below 1024 need rights that a node should not have: choose a higher one.",
        }.get(error.errno or 0, "See `daisychain doctor`.")
        raise NetworkError(f"cannot listen on {Address(host, port)} ({error.strerror})", remedy) from None
    return listener


def drop(transport: asyncio.WriteTransport) -> None:
    """Drop a connection without a farewell, also one that is gone already.

    Python before 3.11.4 raises AttributeError for a TLS connection that has ended.
    """
    with contextlib.suppress(AttributeError):
        transport.abort()


def plain_host(host: str) -> str:
    """Return a socket's numeric host without IPv6's dressing of an IPv4 address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:  # a scoped link-local address
        return host
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
