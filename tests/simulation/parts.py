"""Parts of steps that cannot be computed: on one node only, or wherever they land."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from daisychain.core.ids import NodeId, RunId

WHERE, WHAT, REMEDY = "net.py:3", "loss() raised KeyError: 7", "Correct it and submit again"
WHY = f"{WHERE}: {WHAT}. {REMEDY}"
"""What a node tells of a part that failed."""


class Computing(Protocol):
    """A trainer, as far as it matters here."""

    @property
    def run_id(self) -> RunId:
        """Of the run that it trains."""

    @property
    def node_id(self) -> NodeId:
        """Of the node whose trainer it is."""


@dataclass(slots=True)
class BadParts:
    """Which parts fail.

    Attributes:
        nodes: a step of a run fails on this node; elsewhere its part is sound.
        samples: a step of a run has a sample that fails wherever its share lands.
    """

    nodes: dict[tuple[RunId, int], set[NodeId]] = field(default_factory=dict)
    samples: set[tuple[RunId, int]] = field(default_factory=set)

    def fail_on(self, node_id: NodeId, run_id: RunId, step: int) -> None:
        """Have a node fail whenever it computes a part of ``step``."""
        self.nodes.setdefault((run_id, step), set()).add(node_id)

    def failing(self, step: int, members: Sequence[Computing], landing: int) -> list[int]:
        """Return whose parts of ``step`` fail, by rank; ``landing``: the rank that gets the sample."""
        run_id = members[0].run_id
        here = self.nodes.get((run_id, step), set())
        ranks = [rank for rank, member in enumerate(members) if member.node_id in here]
        if (run_id, step) in self.samples and landing not in ranks:
            ranks.append(landing)
        return ranks
