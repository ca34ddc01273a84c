"""Runs whose result lies in the jobs folder: over, but not before the world's members have theirs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from daisychain.core.ids import RunId
from daisychain.core.jobs import JobCard, JobState


class Written:
    """What the folder says is finished, held back while some member still trains or writes its own result.

    The members of a world end a run within milliseconds of each other, and a look at one folder may fall
    in between. Taken at its word at once, it would have the chain told that the run is over, and a member
    asked to end its trainer, before that member has what it is owed.
    """

    def __init__(self) -> None:
        self._held: frozenset[RunId] = frozenset()

    def scanned(self, cards: Iterable[JobCard], at_work: Collection[RunId]) -> tuple[JobCard, ...]:
        """Return the folder's cards, those of runs that members are ``at_work`` on as if not finished."""
        cards = tuple(cards)
        done = frozenset(card.run_id for card in cards if card.state is JobState.FINISHED)
        self._held = done.intersection(at_work)
        return tuple(
            replace(card, state=JobState.QUEUED) if card.run_id in self._held else card for card in cards
        )

    def over(self, at_work: Collection[RunId]) -> tuple[RunId, ...]:
        """Return, once, the runs held back that nobody is ``at_work`` on any more."""
        over = self._held.difference(at_work)
        self._held -= over
        return tuple(sorted(over))
