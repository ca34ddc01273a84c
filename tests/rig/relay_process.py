"""The relay's process: takes frames off one node's cable, keeps or loses them, and puts them on the bridge.

Run by its path, in the switch's namespace: ``relay_process.py PORT TAP SEED``. It imports nothing but the
standard library, so that it starts in a moment. Lines on its standard input are shapes as JSON
(``{"delay_s": 0.05, "jitter_s": 0.0, "loss": 0.01}``), each answered by a line; at its end the process ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import random
import select
import signal
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
ETH_P_ALL = 3
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
PR_SET_PDEATHSIG = 1

FRAME_MAX_BYTES = 65_600
QUEUE_FRAMES = 8192
"""Frames under way in one direction; beyond them they are dropped."""
BUFFER_BYTES = 8 << 20
AT_ONCE = 64
"""Frames read from one side before the other is looked at."""


class Way:
    """One direction: frames under way, in order, each with the time at which it arrives."""

    def __init__(self, put: Callable[[bytes], object], seed: int) -> None:
        self._put = put
        self._random = random.Random(seed)
        self._frames: deque[tuple[float, bytes]] = deque()
        self._latest_at = 0.0
        self.delay_s = self.jitter_s = self.loss = 0.0

    def take(self, frame: bytes, now: float) -> None:
        """Start a frame on its way, or lose it."""
        if self.loss and self._random.random() < self.loss:
            return
        if len(self._frames) >= QUEUE_FRAMES:
            return
        delay_s = self.delay_s + (
            self._random.uniform(-self.jitter_s, self.jitter_s) if self.jitter_s else 0.0
        )
        self._latest_at = max(self._latest_at, now + delay_s)
        self._frames.append((self._latest_at, frame))

    def deliver(self, now: float) -> None:
        """Let every frame arrive whose time has come; what nobody takes is lost, as on a cable."""
        while self._frames and self._frames[0][0] <= now:
            with contextlib.suppress(OSError):
                self._put(self._frames.popleft()[1])

    def next_at(self) -> float:
        return self._frames[0][0] if self._frames else float("inf")


def open_tap(name: str) -> int:
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return tap


def open_port(name: str) -> socket.socket:
    """Return a socket that sees and sends whole frames on the port."""
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    port.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    port.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES)
    port.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    port.bind((name, ETH_P_ALL))
    port.setblocking(False)
    return port


def relay(port: socket.socket, tap: int, seed: int) -> None:
    """Carry frames until the parent closes our standard input."""
    inwards = Way(lambda frame: os.write(tap, frame), seed)  # from the node to the bridge
    outwards = Way(port.send, seed + 1)
    lines = b""
    while True:
        wait_s = min(inwards.next_at(), outwards.next_at()) - time.monotonic()
        ready, _, _ = select.select([port.fileno(), tap, 0], [], [], max(0.0, min(wait_s, 60.0)))
        now = time.monotonic()
        if port.fileno() in ready:
            with contextlib.suppress(OSError):  # nothing more, or the port is down
                for _ in range(AT_ONCE):
                    inwards.take(port.recv(FRAME_MAX_BYTES), now)
        if tap in ready:
            with contextlib.suppress(OSError):
                for _ in range(AT_ONCE):
                    outwards.take(os.read(tap, FRAME_MAX_BYTES), now)
        inwards.deliver(now)
        outwards.deliver(now)
        if 0 in ready:
            told = os.read(0, 4096)
            if not told:
                return
            *whole, lines = (lines + told).split(b"\n")
            for line in whole:
                for way in (inwards, outwards):
                    for name, value in json.loads(line).items():
                        setattr(way, name, float(value))
                os.write(1, b"shaped\n")


def main(port: str, tap: str, seed: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.nice(-15)  # a delay that also waits for a busy machine would be another delay
    relay(open_port(port), open_tap(tap), int(seed))


if __name__ == "__main__":
    main(*sys.argv[1:])
