"""What a simulated node has written down: it outlives every one of its lives."""

from __future__ import annotations

from dataclasses import dataclass, field

from daisychain.core.ids import NodeId, RunId, Term
from daisychain.core.jobs import JobCard
from daisychain.core.node import HeldResult
from simulation.timeline import Timeline


@dataclass(slots=True)
class Disk:
    """The state folder of one node.

    Attributes:
        saved: step and content of the newest checkpoint of each run that goes on.
        chunks: of each folder or result that it fetches, by digest, how many are there.
        results: by the digest of the job in whose folder each lies.
    """

    name: str
    time: Timeline
    term: Term = field(default_factory=lambda: Term(0, NodeId("")))
    incarnation: int = 0
    ledger: dict[RunId, JobCard] = field(default_factory=dict)
    saved: dict[RunId, tuple[int, str]] = field(default_factory=dict)
    chunks: dict[str, int] = field(default_factory=dict)
    results: dict[str, HeldResult] = field(default_factory=dict)

    def write_term(self, term: Term) -> None:
        """A term never falls on it."""
        if term < self.term:
            self.time.fail(f"{self.name} writes term {term} over {self.term}")
        self.term = term

    def record(self, card: JobCard) -> None:
        """A run that has ended keeps no checkpoint."""
        self.ledger[card.run_id] = card
        if card.state.ended:
            self.saved.pop(card.run_id, None)

    def write_incarnation(self, incarnation: int) -> None:
        """Nor does an incarnation."""
        if incarnation <= self.incarnation:
            self.time.fail(f"{self.name} writes incarnation {incarnation} over {self.incarnation}")
        self.incarnation = incarnation
