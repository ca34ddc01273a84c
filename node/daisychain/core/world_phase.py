"""The phases of a world at its coordinator, and how they are read from what the members tell."""

from __future__ import annotations

from dataclasses import dataclass, field

from daisychain.core.compute_world import Applicant, unfit
from daisychain.core.ids import Generation, NodeId, Term
from daisychain.core.jobs import JobCard
from daisychain.core.messages import PlanWorld, SpreadBlobs
from daisychain.core.node import NodeInfo, TrainerState
from daisychain.core.world import WorldPlan

Post = tuple[NodeId, PlanWorld | SpreadBlobs]
"""What the coordinator has for one member, itself included."""


@dataclass(frozen=True, slots=True)
class Roll:
    """What the coordinator knows at one moment.

    Attributes:
        term: the one that it leads.
        card: the run to be trained; None when there is none.
        chosen_at: since when it is.
        applicants: every living node, itself included.
        quiet_at: when the last new node appeared.
    """

    term: Term
    card: JobCard | None
    chosen_at: float
    applicants: tuple[Applicant, ...]
    quiet_at: float


@dataclass(slots=True)
class Idle:
    """No world. ``waiting`` says what for."""

    waiting: str = ""


@dataclass(slots=True)
class Forming:
    """A plan was handed out. ``deadline_at``: for the blobs, then for everybody to be formed."""

    plan: WorldPlan
    deadline_at: float
    blobs: dict[NodeId, bytes] = field(default_factory=dict)
    spread: bool = False


@dataclass(slots=True)
class Running:
    """Every member reported the world formed. ``join_at``: when to take in who waits."""

    plan: WorldPlan
    join_at: float | None = None


def is_formed(applicant: Applicant, generation: Generation) -> bool:
    """Whether a member reported this world formed."""
    trainer = applicant.trainer
    return trainer.generation == generation and trainer.state in (TrainerState.TRAINING, TrainerState.DONE)


def is_broken(applicant: Applicant, generation: Generation, formed_once: bool) -> bool:
    """Whether a member is out of the world: it says so, or it was in it and no longer is."""
    trainer = applicant.trainer
    return trainer.broken == generation or (formed_once and trainer.generation != generation)


def is_expected(applicant: Applicant, coordinator: NodeInfo, card: JobCard) -> bool:
    """Whether a node will be ready for the run soon: it loads it, or has it and is about to."""
    trainer = applicant.trainer
    if not unfit(applicant, coordinator, card.run_id):
        return False
    if trainer.run_id == card.run_id:
        return trainer.state is TrainerState.LOADING
    return applicant.holds and not applicant.standby
