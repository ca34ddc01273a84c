"""The life of a job: what the chain knows of it, and the table of its transitions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from daisychain.core.ids import RunId


class JobState(StrEnum):
    """Where a run stands; see `merge` for what wins when two nodes tell different ones."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"  # by the user: keeps its place, and is not trained
    WITHDRAWN = "withdrawn"  # its folder was deleted or edited before it was trained to the end
    CANCELLED = "cancelled"
    FAILED = "failed"
    FINISHED = "finished"

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to the run."""
        return not NEXT_STATES[self]


@dataclass(frozen=True, slots=True)
class JobCard:
    """One run of one job, as nodes tell it to each other.

    Attributes:
        run_id: the job's digest and the submission number.
        name: the folder's name under ``jobs/``.
        digest: sha256 (hex) over the folder's files, its results left out.
        submitted_at: Unix seconds when it was first seen, the least that any node tells; orders the queue
            (ties by run_id).
        state: see JobState.
        reason: why it is paused, failed, or was cancelled or withdrawn, with the remedy.
        min_nodes: the first world waits for this many nodes.
        step, steps: committed training steps, and how many there are (0 = not yet known).
        revision: how often it was paused or resumed: the user's latest word has the highest.
        priority: the higher one is trained first.
        max_nodes: no more nodes train it at once (0 = as many as there are).
    """

    run_id: RunId
    name: str
    digest: str
    submitted_at: float
    state: JobState = JobState.QUEUED
    reason: str = ""
    min_nodes: int = 1
    step: int = 0
    steps: int = 0
    revision: int = 0
    priority: int = 0
    max_nodes: int = 0

    def again(self, run_id: RunId, submitted_at: float) -> JobCard:
        """Return the card of a new run of this job, from its first step."""
        return replace(
            self,
            run_id=run_id,
            submitted_at=submitted_at,
            state=JobState.QUEUED,
            reason="",
            step=0,
            revision=0,
        )

    @property
    def least_nodes(self) -> int:
        """How many nodes its first world waits for: a wish for more than it takes at once is none."""
        return min(self.min_nodes, self.max_nodes) if self.max_nodes else self.min_nodes


REASON_MAX = 1000
"""Most characters of a reason that is told: what a user's code raises may be as long as it likes."""


def told_reason(text: str, most: int = REASON_MAX) -> str:
    """Return ``text``, cut where it is longer than peers are told, or than ``most`` characters (>= 1)."""
    return text if len(text) <= most else text[: most - 1] + "…"


_ENDS = frozenset({JobState.WITHDRAWN, JobState.CANCELLED, JobState.FAILED, JobState.FINISHED})

NEXT_STATES: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: _ENDS | {JobState.RUNNING, JobState.PAUSED},
    JobState.RUNNING: _ENDS | {JobState.PAUSED},
    JobState.PAUSED: _ENDS | {JobState.QUEUED},
    JobState.WITHDRAWN: frozenset(),
    JobState.CANCELLED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.FINISHED: frozenset(),
}
"""The life of a run on one node. One that waits may end unseen: the others ran it while we were away."""

_WEIGHT = {state: weight for weight, state in enumerate(JobState)}


def advance(card: JobCard, state: JobState, reason: str = "") -> JobCard:
    """Return the card in its next state; the card itself when the table has no such transition.

    Pausing and resuming raise the revision: a person's word, which no older one may undo.
    """
    if state not in NEXT_STATES[card.state]:
        return card
    word = not state.ended and JobState.PAUSED in (card.state, state)
    return replace(card, state=state, reason=reason, revision=card.revision + word)


def merge(mine: JobCard, theirs: JobCard) -> JobCard:
    """Return what two nodes know of one run together: commutative, associative, idempotent.

    An end wins over everything else. Of two that go on the higher revision wins, whatever its state, so
    that a run that was resumed stays so though somebody still tells that it is paused; of equal revisions
    the later state. With it come its reason and revision; besides these the first of the names, the
    earlier submission, the greater progress.
    """
    winner = max(mine, theirs, key=_standing)
    return replace(
        winner,
        name=min(mine.name, theirs.name),
        submitted_at=min(mine.submitted_at, theirs.submitted_at),
        min_nodes=max(mine.min_nodes, theirs.min_nodes),
        step=max(mine.step, theirs.step),
        steps=max(mine.steps, theirs.steps),
        priority=max(mine.priority, theirs.priority),
        max_nodes=max(mine.max_nodes, theirs.max_nodes),
    )


def _standing(card: JobCard) -> tuple[int, int, int, str]:
    """Sort key of what a card says of its run's life: the greatest is believed."""
    end = _WEIGHT[card.state] if card.state.ended else 0
    return (end, card.revision, _WEIGHT[card.state], card.reason)
