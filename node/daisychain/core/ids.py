"""The names and numbers by which nodes, terms, worlds and runs are told apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

NodeId = NewType("NodeId", str)
"""32 lower-case hex digits; chosen at random by the node, proven by its certificate."""

ClusterId = NewType("ClusterId", str)
"""16 lower-case hex digits derived from the cluster key; public."""

RunId = NewType("RunId", str)
"""``<first 16 hex digits of the job's digest>-<submission number>``: one training of one job."""


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """A TCP end point: a numeric IP address (never a name, see FIELD-NOTES on DNS) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, order=True)
class Term:
    """One coordinator's time in office, compared by number and then by node id.

    Persisted before it is used, so that it never falls, restarts included.
    """

    number: int
    node_id: NodeId

    def __str__(self) -> str:
        return f"{self.number}@{self.node_id[:8]}"


@dataclass(frozen=True, slots=True, order=True)
class Generation:
    """One process-group world: strictly rising, so that a stale trainer can never enter a newer one.

    ``nonce`` tells apart two attempts that would otherwise be equal (a coordinator restarted
    from a lost disk); it takes part in the order only as the last resort.
    """

    term: Term
    counter: int
    nonce: int

    def __str__(self) -> str:
        return f"{self.term.number}.{self.counter}"
