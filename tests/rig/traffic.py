"""Real packets between machines of the rig, to see what their links do."""

from __future__ import annotations

import contextlib
import socket
import statistics
import struct
import time
from collections.abc import Iterator

from rig.lan import Place
from support.namespaces import inside

GROUP = "239.77.7.7"
QUIET_S = 0.3
"""So long after the last packet nothing comes any more."""

SO_RCVBUFFORCE = 33
RECEIVE_BYTES = 4 << 20
"""Room for whatever a relay lets go at once after it stood still: the usual bound of the system is too small
for that, and the receiver would lose what the link did not."""

UDP_OVERHEAD_BYTES = 42
"""Ethernet, IP and UDP headers: what a rate counts besides the payload."""


@contextlib.contextmanager
def udp(place: Place, port: int = 0) -> Iterator[socket.socket]:
    """A datagram socket of that machine, bound to its address."""

    def make() -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES)
        made.bind((place.address, port))
        return made

    with inside(place.namespace, make) as made:
        yield made


@contextlib.contextmanager
def tcp(source: Place, target: Place) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection from ``source`` to ``target``."""
    with inside(target.namespace, lambda: socket.create_server((target.address, 0))) as listener:
        address = listener.getsockname()
        with inside(source.namespace, lambda: socket.create_connection(address, timeout=10)) as near:
            far, _ = listener.accept()
            with far:
                yield near, far


def passes(source: Place, target: Place) -> bool:
    """Whether a datagram from one machine reaches the other (an answer is not needed)."""
    with udp(source) as near, udp(target) as far:
        far.settimeout(QUIET_S)
        near.sendto(b"?", far.getsockname())
        try:
            return far.recv(16) == b"?"
        except TimeoutError:
            return False


def multicast_reaches(source: Place, target: Place) -> bool:
    """Whether a datagram to a group reaches a member of it on the other machine."""

    def join() -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((GROUP, 0))
        member = socket.inet_aton(GROUP) + socket.inet_aton(target.address)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        return made

    with inside(target.namespace, join) as far, udp(source) as near:
        near.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(source.address))
        far.settimeout(QUIET_S)
        near.sendto(b"!", (GROUP, far.getsockname()[1]))
        try:
            return far.recv(16) == b"!"
        except TimeoutError:
            return False


def round_trip_s(first: Place, second: Place, count: int = 9) -> float:
    """Return the median time for a datagram there and one back."""
    took = []
    with udp(first) as near, udp(second) as far:
        near.settimeout(5.0)
        far.settimeout(5.0)
        for _ in range(count):
            began_at = time.monotonic()
            near.sendto(b"?", far.getsockname())
            far.recv(16)
            far.sendto(b"!", near.getsockname())
            near.recv(16)
            took.append(time.monotonic() - began_at)
    return statistics.median(took)


def arrivals(source: Place, target: Place, count: int, pause_s: float = 0.0005) -> list[tuple[int, float]]:
    """Send numbered datagrams at a steady pace; return the number of each that came, and how long it took."""
    sent_at: list[float] = []
    came: list[tuple[int, float]] = []
    with udp(source) as near, udp(target) as far:
        far.setblocking(False)

        def take() -> None:
            with contextlib.suppress(BlockingIOError):
                while True:
                    number = struct.unpack("I", far.recv(16))[0]
                    came.append((number, time.monotonic() - sent_at[number]))

        for number in range(count):
            sent_at.append(time.monotonic())
            near.sendto(struct.pack("I", number), far.getsockname())
            while time.monotonic() < sent_at[-1] + pause_s:
                take()
        quiet_since, seen = time.monotonic(), len(came)
        while time.monotonic() < quiet_since + QUIET_S:  # since the last arrival: a busy relay may be late
            take()
            if len(came) > seen:
                quiet_since, seen = time.monotonic(), len(came)
            time.sleep(0.001)
    return came


def rate_mbit(source: Place, target: Place, seconds: float, flood_mbit: float) -> float:
    """Return what arrives of a steady flood, headers included, in its second half."""
    payload = bytes(1400)
    pause_s = (len(payload) + UDP_OVERHEAD_BYTES) * 8 / flood_mbit / 1e6
    marks: list[tuple[float, int]] = []
    arrived = 0
    with udp(source) as near, udp(target) as far:
        near.setblocking(False)
        far.setblocking(False)
        began_at = time.monotonic()
        sent = 0
        while (elapsed_s := time.monotonic() - began_at) < seconds:
            with contextlib.suppress(BlockingIOError):  # its own queue is full: lost like any other
                while sent * pause_s <= elapsed_s:
                    sent += 1
                    near.sendto(payload, far.getsockname())
            with contextlib.suppress(BlockingIOError):
                while True:
                    arrived += len(far.recv(2048)) + UDP_OVERHEAD_BYTES
            marks.append((elapsed_s, arrived))
            time.sleep(0.001)
    middle = next(mark for mark in marks if mark[0] >= seconds / 2)
    return (marks[-1][1] - middle[1]) * 8 / 1e6 / (marks[-1][0] - middle[0])
