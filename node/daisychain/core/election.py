"""Who coordinates: follower or coordinator, by terms that never fall.

There is no quorum: two machines must survive the loss of either, so both sides of a partition may
lead. That is safe because training is the same on both sides (promise 1); when they meet, the
higher term leads on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from daisychain.core.ids import NodeId, Term
from daisychain.core.settings import CoreSettings


@dataclass(frozen=True, slots=True)
class Voice:
    """What one living peer says that matters here.

    Attributes:
        term, leading, reachable: of its status.
        candidate: whether it could lead: no doubt about its life, and it hears this node too.
    """

    node_id: NodeId
    term: Term
    leading: bool
    reachable: tuple[NodeId, ...]
    candidate: bool


class Election:
    """The term, and when to claim the next one."""

    def __init__(self, node_id: NodeId, term: Term, settings: CoreSettings, now: float) -> None:
        self._me = node_id
        self._settings = settings
        self.term = term
        self.leading = False
        self._vacant_at: float | None = now
        self._settle_from: float | None = now
        self._quiet_at = now

    def discovered(self, now: float) -> None:
        """A new peer appeared: discovery is not quiet."""
        self._quiet_at = now

    @property
    def settling(self) -> bool:
        """Whether this node has just started or woken, and has not yet heard or become a coordinator."""
        return self._settle_from is not None

    @property
    def quiet_at(self) -> float:
        """Since when discovery has been quiet."""
        return self._quiet_at

    def wake(self, now: float) -> None:
        """This node was frozen: whatever it knew of who leads may be old; it settles anew."""
        self.leading = False
        self._vacant_at = now
        self._settle_from = now
        self._quiet_at = now

    def adopt(self, term: Term) -> bool:
        """Take over a higher term, which ends our leading; return whether it is one (persist it then)."""
        if term <= self.term:
            return False
        self.term = term
        self.leading = False
        return True

    def rival(self, term: Term, leading: bool) -> bool:
        """Another coordinator of a lower term is met; return whether ours changed (persist it then).

        With equal numbers we claim the next one, so that the number alone tells which one leads on.
        """
        if not (self.leading and leading and term < self.term and term.number == self.term.number):
            return False
        self.term = Term(self.term.number + 1, self._me)
        return True

    def leader(self, voices: Sequence[Voice]) -> NodeId | None:
        """Return who leads our term as far as this node hears it itself; None when nobody does."""
        if self.leading:
            return self._me
        for voice in voices:
            if voice.node_id == self.term.node_id and voice.leading and voice.term == self.term:
                return voice.node_id
        return None

    def vouched(self, voices: Sequence[Voice]) -> bool:
        """Whether a peer of our term reaches its coordinator though we do not hear it at all.

        Then we wait, so that a chain with a hole in its mesh does not elect for ever.
        """
        leader = self.term.node_id
        if leader == self._me or any(voice.node_id == leader for voice in voices):
            return False
        return any(voice.term == self.term and leader in voice.reachable for voice in voices)

    def review(self, voices: Sequence[Voice], now: float) -> bool:
        """Claim the next term when it is time to; return whether that happened (persist it first)."""
        if self.leader(voices) is not None or self.vouched(voices):
            self._vacant_at = None
            self._settle_from = None
            return False
        if self._vacant_at is None:
            self._vacant_at = now
        if now < self._claim_at(voices):
            return False
        highest = max([self.term.number, *(voice.term.number for voice in voices)])
        self.term = Term(highest + 1, self._me)
        self.leading = True
        self._vacant_at = None
        self._settle_from = None
        return True

    def deadline(self, voices: Sequence[Voice]) -> float | None:
        """Return when `review` may next claim; None while somebody leads."""
        return None if self._vacant_at is None else self._claim_at(voices)

    def _claim_at(self, voices: Sequence[Voice]) -> float:
        """Return when this node's turn comes: the lowest node id first, the others after it.

        A coordinator's loss is answered at once; a node that just started or woke settles first.
        """
        settings = self._settings
        before = sum(1 for voice in voices if voice.candidate and voice.node_id < self._me)
        start = self._vacant_at or 0.0
        if self._settle_from is not None:
            quiet_at = max(self._settle_from, self._quiet_at) + settings.settle_s
            start = max(start, min(quiet_at, self._settle_from + settings.settle_max_s))
        return start + before * settings.turn_s
