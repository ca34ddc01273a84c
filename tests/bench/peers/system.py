"""What the benchmark knows of a competitor: the programs of a node, and the settings they were given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

TRAIN = Path(__file__).parent


@dataclass(frozen=True)
class Seat:
    """One node's place in a competitor's chain.

    Attributes:
        number: from 0; number 0 hosts what there is one of (the lighthouse, the rendezvous).
        address: of its interface.
        host: the address of number 0.
        folder: its own files; ``steps`` in it is its log of committed steps.
        job: the file with the model and the data.
        hosts: the file that tells each other's hostnames, as on a LAN with names.
    """

    number: int
    name: str
    address: str
    host: str
    nodes: int
    folder: Path
    job: Path
    hosts: Path


@dataclass(frozen=True)
class Service:
    """What runs once in a chain: its command, and the TCP port that is open once it is ready."""

    command: list[str]
    port: int


class System(Protocol):
    """One competitor.

    Attributes:
        settings: as the result tells them.
        environment: variables for its processes.
        one_process: what trains on a node is all that runs there.
    """

    name: str
    version: str
    settings: Mapping[str, object]
    environment: Mapping[str, str]
    one_process: bool

    def service(self, seat: Seat) -> Service | None:
        """Return what runs once in a chain, on the node ``seat``; None where nothing does."""

    def node(self, seat: Seat) -> list[str]:
        """Return the command that trains on ``seat``."""
