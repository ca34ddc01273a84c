"""The trainer's end of the socket pair to its agent."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator

from daisychain.core.orders import Order
from daisychain.core.reports import Report
from daisychain.wire.codec import ORDER_CODEC, REPORT_CODEC
from daisychain.wire.frames import FrameReader, frame

READ_BYTES = 1 << 16

SEND_S = 30.0
"""An agent that reads nothing for so long is stuck or frozen; its trainer ends rather than wait on."""


class AgentGoneError(Exception):
    """The agent died, closed its end, or does not read."""


class AgentLink:
    """Sends reports from any thread; one thread iterates over `orders`."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self._socket = socket.socket(fileno=fd)
        seconds, fraction = divmod(SEND_S, 1.0)
        timeout = struct.pack("ll", int(seconds), int(fraction * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
        self._sending = threading.Lock()

    def send(self, report: Report) -> None:
        """Send ``report``; raises `AgentGoneError`."""
        data = frame(REPORT_CODEC.encode(report))
        try:
            with self._sending:
                self._socket.sendall(data)
        except OSError as error:
            raise AgentGoneError(f"the agent takes no reports: {error}") from None

    def let_go_in_child(self) -> None:
        """Close the socket in a forked child: the agent would not see this process end."""
        self._socket.close()

    def orders(self) -> Iterator[Order]:
        """Yield orders as they come; ends when the agent is gone. Raises `ProtocolError`."""
        frames = FrameReader()
        while True:
            try:
                data = self._socket.recv(READ_BYTES)
            except OSError:
                return
            if not data:
                return
            for payload in frames.feed(data):
                yield ORDER_CODEC.decode(payload)
