"""What every way of finding nodes has in common: it yields candidate addresses, never trust."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from daisychain.core.events import CandidateSeen
from daisychain.core.ids import Address, ClusterId, NodeId


class SourceHealth(StrEnum):
    """Where a source stands."""

    OFF = "off"  # not configured
    WAITING = "waiting"  # started, nothing to tell yet
    OK = "ok"
    UNAVAILABLE = "unavailable"  # it cannot work here now; it is tried again


@dataclass(frozen=True, slots=True)
class SourceState:
    """What one source says of itself, for status and doctor. ``text``: why, for people."""

    source: str
    health: SourceHealth
    text: str


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a node tells of itself to whoever can hear it: nothing secret."""

    node_id: NodeId
    cluster_id: ClusterId
    address: Address
    version: str


class Source(Protocol):
    """One way of finding nodes. A new one is a file with a class like this, and a line in discovery."""

    @property
    def name(self) -> str:
        """The ``source`` of its candidates."""

    async def run(
        self, found: Callable[[CandidateSeen], None], say: Callable[[SourceHealth, str], None]
    ) -> None:
        """Look for nodes until cancelled, then clean up.

        What is still there is found again and again: whoever listens need not remember it.
        Raises NetworkError when it cannot work here; discovery says so and tries again later.
        """
