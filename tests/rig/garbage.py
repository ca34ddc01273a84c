"""Somebody on the LAN who sends garbage to every open port of every node."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

from rig.node import RigNode
from support.namespaces import enter_with_this_thread

LISTENS = "0A"
SAID = (b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 64, b"\xff" * 4096)
CONNECT_S = 0.2


class Garbage:
    """Talks nonsense from the machine of one node to the ports of all, until it is ended.

    Attributes:
        hit: (node, port) of whatever took a connection and some bytes.
    """

    def __init__(self, nodes: Sequence[RigNode], seed: int = 1) -> None:
        self.hit: set[tuple[str, int]] = set()
        self._nodes = list(nodes)
        self._dice = random.Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._talk, name="rig-garbage", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def _talk(self) -> None:
        enter_with_this_thread(self._nodes[0].place.namespace)
        while not self._over.is_set():
            for node in self._nodes:
                for host, port in listening(node):
                    self._send(node, host, port)
            self._over.wait(0.002)

    def _send(self, node: RigNode, host: str, port: int) -> None:
        words = self._dice.choice((*SAID, self._dice.randbytes(256)))
        with contextlib.suppress(OSError), socket.create_connection((host, port), CONNECT_S) as connection:
            connection.sendall(words)
            self.hit.add((node.name, port))


def listening(node: RigNode) -> list[tuple[str, int]]:
    """Return the TCP addresses on which the node's machine listens for others."""
    found = []
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{node.process.pid}/net/tcp").read_text().splitlines()[1:]:
            _, address, _, state, *_ = line.split()
            host, port = address.split(":")
            if state == LISTENS and socket.inet_ntoa(bytes.fromhex(host)[::-1]) == node.place.address:
                found.append((node.place.address, int(port, 16)))
    return found
