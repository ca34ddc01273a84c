"""The job queue of one node: its own folder, its ledger and what peers tell, as one book of cards."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from dataclasses import replace

from daisychain.core.ids import RunId
from daisychain.core.jobs import JobCard, JobState, advance, merge, told_reason
from daisychain.core.node import ENDED_TOLD_MAX, JOBS_MAX


def queue_order(card: JobCard) -> tuple[float, RunId]:
    """Sort key: the first submitted first, ties by run id."""
    return (card.submitted_at, card.run_id)


class JobQueue:
    """Every run that this node knows of.

    What ended stays ended; a queued run lives while somebody holds its folder.
    """

    def __init__(self, ledger: Iterable[JobCard]) -> None:
        self._cards: dict[RunId, JobCard] = {}
        self._digests: dict[str, str] = {}
        self._recorded: set[RunId] = set()
        for card in ledger:
            self._cards[card.run_id] = card
            if card.state.ended:
                self._recorded.add(card.run_id)

    def get(self, run_id: RunId) -> JobCard | None:
        """Return the card of a run, or None."""
        return self._cards.get(run_id)

    def scanned(self, cards: Iterable[JobCard]) -> None:
        """Take in what the jobs folder holds now."""
        cards = tuple(cards)
        self._digests = {card.name: card.digest for card in cards}
        self.learn(cards)

    def learn(self, cards: Iterable[JobCard]) -> bool:
        """Take in cards from anywhere; return whether anything changed."""
        changed = False
        for card in cards:
            known = self._cards.get(card.run_id)
            if known is None and len(self._cards) >= JOBS_MAX and not self._make_room():
                continue
            merged = card if known is None else merge(known, card)
            if merged != known:
                self._cards[card.run_id] = merged
                changed = True
        return changed

    def holds(self, card: JobCard) -> bool:
        """Whether this node has the very folder of the run."""
        return self._digests.get(card.name) == card.digest

    def differs(self, card: JobCard) -> bool:
        """Whether this node has a folder of that name whose files are others."""
        return self._digests.get(card.name, card.digest) != card.digest

    def held(self) -> tuple[RunId, ...]:
        """Return the runs that are not over and whose folder this node has."""
        runs = [card.run_id for card in self._cards.values() if not card.state.ended and self.holds(card)]
        return tuple(sorted(runs)[:JOBS_MAX])

    def mark(self, run_id: RunId, state: JobState, reason: str = "") -> None:
        """Move a run to its next state; nothing happens when the table has no such transition."""
        card = self._cards.get(run_id)
        if card is not None:
            self._cards[run_id] = advance(card, state, told_reason(reason))

    def progress(self, run_id: RunId, step: int, steps: int) -> None:
        """Remember how far a run is; it never falls."""
        card = self._cards.get(run_id)
        if card is not None and (step > card.step or steps > card.steps):
            self._cards[run_id] = replace(card, step=max(step, card.step), steps=max(steps, card.steps))

    def pick(self, current: RunId | None, available: Container[RunId]) -> JobCard | None:
        """Return the run that the coordinator has trained next, marked running; None when there is none.

        The current one stays; then runs that were running already, then the queue in its order. Only
        runs that some node can train (``available``), and none whose folder differs from our own.
        """
        if current is not None and current in available:
            card = self._cards.get(current)
            if card is not None and not card.state.ended:
                return card
        head = self.head(available)
        if head is not None:
            self.mark(head.run_id, JobState.RUNNING)
            return self._cards[head.run_id]
        return None

    def head(self, available: Container[RunId]) -> JobCard | None:
        """Return the run that `pick` would take while there is no current one; None when there is none."""
        for state in (JobState.RUNNING, JobState.QUEUED):
            fit = [
                card
                for card in self._cards.values()
                if card.state is state
                and card.run_id in available
                and not (state is JobState.QUEUED and self.differs(card))
            ]
            if fit:
                return min(fit, key=queue_order)
        return None

    def ended(self) -> bool:
        """Whether some run that this node knows of is over."""
        return any(card.state.ended for card in self._cards.values())

    def stray(self) -> bool:
        """Whether a queued run is known whose folder this node does not have."""
        return any(c.state is JobState.QUEUED and not self.holds(c) for c in self._cards.values())

    def prune(self, available: Container[RunId]) -> None:
        """Forget queued runs whose folder nobody has any more."""
        for card in list(self._cards.values()):
            if card.state is JobState.QUEUED and card.run_id not in available and not self.holds(card):
                del self._cards[card.run_id]

    def newly_ended(self) -> list[JobCard]:
        """Return the runs that ended since the last call: each is recorded once."""
        ended = [c for c in self._cards.values() if c.state.ended and c.run_id not in self._recorded]
        self._recorded.update(card.run_id for card in ended)
        return ended

    def told(self, believed: Collection[RunId] = ()) -> tuple[JobCard, ...]:
        """Return the cards for our status, at most JOBS_MAX.

        Those that run and those whose folder we have; of the ended ones the newest, and whichever a
        peer believes to go on (``believed``), so that nobody runs it again.
        """
        going, ended, contradicted = [], [], []
        for card in self._cards.values():
            if not card.state.ended:
                if card.state is JobState.RUNNING or self.holds(card):
                    going.append(card)
            elif card.run_id in believed:
                contradicted.append(card)
            else:
                ended.append(card)
        newest = sorted(ended, key=queue_order, reverse=True)[:ENDED_TOLD_MAX]
        parts = (sorted(contradicted, key=queue_order), sorted(going, key=queue_order), newest)
        return tuple(card for part in parts for card in part)[:JOBS_MAX]

    def all(self) -> tuple[JobCard, ...]:
        """Return every card in queue order, the ended ones last."""
        return tuple(sorted(self._cards.values(), key=lambda card: (card.state.ended, *queue_order(card))))

    def _make_room(self) -> bool:
        """Forget the oldest run that ended; its ledger entry stays on disk."""
        ended = [card for card in self._cards.values() if card.state.ended]
        if not ended:
            return False
        del self._cards[min(ended, key=queue_order).run_id]
        return True
