"""The job queue of one node: its own folder, its ledger and what peers tell, as one book of cards."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from dataclasses import replace

from daisychain.core.ids import RunId
from daisychain.core.jobs import JobCard, JobState, advance, merge, told_reason
from daisychain.core.node import ENDED_TOLD_MAX, JOBS_MAX


def queue_order(card: JobCard) -> tuple[int, float, RunId]:
    """Sort key: the highest priority first, then the first submitted, ties by run id."""
    return (-card.priority, card.submitted_at, card.run_id)


def age(card: JobCard) -> tuple[float, RunId]:
    """Sort key: the first submitted first."""
    return (card.submitted_at, card.run_id)


class JobQueue:
    """Every run that this node knows of.

    What ended stays ended; a queued run lives while somebody holds its folder, or while a person's word of
    it is known: it was submitted at this very node, or paused and resumed.
    """

    def __init__(self, ledger: Iterable[JobCard]) -> None:
        self._cards: dict[RunId, JobCard] = {}
        self._digests: frozenset[str] = frozenset()
        self._names: frozenset[str] = frozenset()
        self._asked: set[RunId] = set()  # this and _recorded hold runs of _cards alone
        self._had: frozenset[str] = frozenset()  # digests that were here in this life, of runs still known
        self._recorded: dict[RunId, tuple[bool, int]] = {}
        for card in ledger:
            self._cards[card.run_id] = card
            self._recorded[card.run_id] = _lasting(card)

    def get(self, run_id: RunId) -> JobCard | None:
        """Return the card of a run, or None."""
        return self._cards.get(run_id)

    def scanned(self, cards: Iterable[JobCard]) -> None:
        """Take in what the jobs folder holds now."""
        cards = tuple(cards)
        self._digests = frozenset(card.digest for card in cards)
        self._names = frozenset(card.name for card in cards)
        self.learn(cards)
        self._had = (self._had | self._digests) & {card.digest for card in self._cards.values()}

    def asked(self, card: JobCard) -> None:
        """The user of this node submits a run; its folder may be on other nodes alone."""
        self.learn([card])
        if card.run_id in self._cards:
            self._asked.add(card.run_id)

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
        """Whether this node has the very files of the run, in a folder of whatever name."""
        return card.digest in self._digests

    def differs(self, card: JobCard) -> bool:
        """Whether this node has a folder of that name, and all of its files are another job's."""
        return card.name in self._names and not self.holds(card)

    def held(self) -> tuple[RunId, ...]:
        """Return the runs that are not over and whose folder this node has."""
        runs = [card.run_id for card in self._cards.values() if not card.state.ended and self.holds(card)]
        return tuple(sorted(runs)[:JOBS_MAX])

    def mark(self, run_id: RunId, state: JobState, reason: str = "") -> None:
        """Move a run to its next state; nothing happens when the table has no such transition."""
        card = self._cards.get(run_id)
        if card is not None:
            self._cards[run_id] = advance(card, state, told_reason(reason))

    def withdraw(self, digest: str, states: Collection[JobState], reason: str) -> list[RunId]:
        """End a job's runs that are in one of ``states``: their files are wanted no more. Return which."""
        runs = [c.run_id for c in self._cards.values() if c.digest == digest and c.state in states]
        for run_id in runs:
            self.mark(run_id, JobState.WITHDRAWN, reason)
        return runs

    def resume(self, run_id: RunId) -> None:
        """Have a paused run wait for its turn again; nothing happens to any other."""
        card = self._cards.get(run_id)
        if card is not None and card.state is JobState.PAUSED:
            self._cards[run_id] = advance(card, JobState.QUEUED)

    def progress(self, run_id: RunId, step: int, steps: int) -> None:
        """Remember how far a run is; it never falls."""
        card = self._cards.get(run_id)
        if card is not None and (step > card.step or steps > card.steps):
            self._cards[run_id] = replace(card, step=max(step, card.step), steps=max(steps, card.steps))

    def pick(self, current: RunId | None, available: Container[RunId]) -> JobCard | None:
        """Return the run that the coordinator has trained next, marked running; None when there is none.

        The current one stays; then runs that were running already, then the queue in its order. Only
        runs that some node can train (``available``), and none that is paused.
        """
        if current is not None and current in available:
            card = self._cards.get(current)
            if card is not None and not card.state.ended and card.state is not JobState.PAUSED:
                self.mark(current, JobState.RUNNING)
                return self._cards[current]
        head = self.head(available)
        if head is not None:
            self.mark(head.run_id, JobState.RUNNING)
            return self._cards[head.run_id]
        return None

    def head(self, available: Container[RunId]) -> JobCard | None:
        """Return the run that `pick` would take while there is no current one; None when there is none."""
        for state in (JobState.RUNNING, JobState.QUEUED):
            fit = [card for card in self._cards.values() if card.state is state and card.run_id in available]
            if fit:
                return min(fit, key=queue_order)
        return None

    def ended(self) -> bool:
        """Whether some run that this node knows of is over."""
        return any(card.state.ended for card in self._cards.values())

    def removed(self, card: JobCard) -> bool:
        """Whether the run's folder was here in this life and is no longer: somebody took it away."""
        return card.digest in self._had and not self.holds(card)

    def stray(self) -> bool:
        """Whether a queued run is known that lives by the folder of another node."""
        return any(self._by_hearsay(card) for card in self._cards.values())

    def prune(self, available: Container[RunId]) -> None:
        """Forget queued runs whose folder nobody has any more."""
        for card in list(self._cards.values()):
            if self._by_hearsay(card) and card.run_id not in available:
                self._forget(card.run_id)

    def to_record(self) -> list[JobCard]:
        """Return the runs that ended, were paused or resumed since the last call: for the ledger."""
        new = [
            card
            for card in self._cards.values()
            if (card.state.ended or card.revision) and self._recorded.get(card.run_id) != _lasting(card)
        ]
        self._recorded.update((card.run_id, _lasting(card)) for card in new)
        return new

    def told(self, believed: Collection[RunId] = ()) -> tuple[JobCard, ...]:
        """Return the cards for our status, at most JOBS_MAX.

        Those that go on, but for what is mere hearsay of a folder; of the ended ones the newest, and
        whichever a peer believes to go on (``believed``), so that nobody runs it again.
        """
        going, ended, contradicted = [], [], []
        for card in self._cards.values():
            if not card.state.ended:
                if not self._by_hearsay(card):
                    going.append(card)
            elif card.run_id in believed:
                contradicted.append(card)
            else:
                ended.append(card)
        newest = sorted(ended, key=age, reverse=True)[:ENDED_TOLD_MAX]
        parts = (sorted(contradicted, key=age), sorted(going, key=queue_order), newest)
        return tuple(card for part in parts for card in part)[:JOBS_MAX]

    def all(self) -> tuple[JobCard, ...]:
        """Return every card in queue order, the ended ones last, by age."""
        going = [card for card in self._cards.values() if not card.state.ended]
        ended = [card for card in self._cards.values() if card.state.ended]
        return (*sorted(going, key=queue_order), *sorted(ended, key=age))

    def _make_room(self) -> bool:
        """Forget the oldest run that ended; its ledger entry stays on disk."""
        ended = [card for card in self._cards.values() if card.state.ended]
        if not ended:
            return False
        self._forget(min(ended, key=age).run_id)
        return True

    def _forget(self, run_id: RunId) -> None:
        """Know nothing more of a run, so that a peer that tells of ever new ones fills no memory.

        Is it told again, it is recorded again, which changes nothing in a ledger that has it.
        """
        del self._cards[run_id]
        self._asked.discard(run_id)
        self._recorded.pop(run_id, None)

    def _by_hearsay(self, card: JobCard) -> bool:
        """Whether all that this node knows of a run is that others have its folder."""
        if card.state is not JobState.QUEUED or card.revision:
            return False
        return card.run_id not in self._asked and not self.holds(card)


def _lasting(card: JobCard) -> tuple[bool, int]:
    """Return what of a run must survive every node's restart."""
    return (card.state.ended, card.revision)
