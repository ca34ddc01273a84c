"""The life of a job: what the chain knows of it, and the table of its transitions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from daisychain.core.ids import RunId


class JobState(StrEnum):
    """Where a run stands; the later states win when two nodes tell different ones."""

    QUEUED = "queued"
    RUNNING = "running"
    CANCELLED = "cancelled"
    FAILED = "failed"
    FINISHED = "finished"

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to the run."""
        return self in (JobState.CANCELLED, JobState.FAILED, JobState.FINISHED)


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
        reason: why it failed or was cancelled, with the remedy.
        min_nodes: the first world waits for this many nodes.
        step, steps: committed training steps, and how many there are (0 = not yet known).
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


REASON_MAX = 1000
"""Most characters of a reason that is told: what a user's code raises may be as long as it likes."""


def told_reason(text: str, most: int = REASON_MAX) -> str:
    """Return ``text``, cut where it is longer than peers are told, or than ``most`` characters (>= 1)."""
    return text if len(text) <= most else text[: most - 1] + "…"


NEXT_STATES: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.RUNNING, JobState.CANCELLED, JobState.FAILED, JobState.FINISHED}),
    JobState.RUNNING: frozenset({JobState.CANCELLED, JobState.FAILED, JobState.FINISHED}),
    JobState.CANCELLED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.FINISHED: frozenset(),
}
"""The life of a run on one node. A queued one may end unseen: the others ran it while we were away."""

_WEIGHT = {state: weight for weight, state in enumerate(JobState)}


def advance(card: JobCard, state: JobState, reason: str = "") -> JobCard:
    """Return the card in its next state; the card itself when the table has no such transition."""
    return replace(card, state=state, reason=reason) if state in NEXT_STATES[card.state] else card


def merge(mine: JobCard, theirs: JobCard) -> JobCard:
    """Return what two nodes know of one run together: commutative, associative, idempotent.

    The later state wins with its reason, the earlier submission, and the greater progress.
    """
    winner = max(mine, theirs, key=lambda card: (_WEIGHT[card.state], card.reason))
    return replace(
        winner,
        submitted_at=min(mine.submitted_at, theirs.submitted_at),
        min_nodes=max(mine.min_nodes, theirs.min_nodes),
        step=max(mine.step, theirs.step),
        steps=max(mine.steps, theirs.steps),
    )
