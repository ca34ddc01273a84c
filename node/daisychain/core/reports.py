"""What a trainer tells its agent, over their private socket pair."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from daisychain.core.ids import Generation, RunId
from daisychain.core.shares import Capacity


class Phase(StrEnum):
    """What the training thread is doing: tells a node that computes too long from one that waits."""

    LOADING = "loading"
    IDLE = "idle"  # in no world, waiting for a plan
    FORMING = "forming"
    RECONCILING = "reconciling"  # comparing states
    TRANSFERRING = "transferring"  # passing a member's state to those behind
    SAVING = "saving"  # copying the state for a checkpoint
    COMPUTING = "computing"
    EXCHANGING = "exchanging"  # in a collective: waits for the others
    COMMITTING = "committing"  # the gradient is whole here: its rider, then the optimizer's step
    EVALUATING = "evaluating"
    FINISHING = "finishing"  # writing the result
    HOLDING = "holding"  # done; keeps the final state for whoever is behind


@dataclass(frozen=True, slots=True)
class TrainerReady:
    """The job is loaded and measured: a world may be formed with this node.

    Attributes:
        capacity: in units of the job (samples or granules), of one whole step.
        rounding: digest that is equal on machines that round alike (see `trainer.engine.rounding`); empty
            where the job promises no bits.
        tick, step: committed so far (from a checkpoint; 0 otherwise).
        steps: training steps of the whole run.
        parameters: number of trained parameters.
    """

    run_id: RunId
    capacity: Capacity
    rounding: str
    tick: int
    step: int
    steps: int
    parameters: int


@dataclass(frozen=True, slots=True)
class LocalBlob:
    """This rank's gloo address blob, for every other rank of the forming world."""

    generation: Generation
    rank: int
    blob: bytes


@dataclass(frozen=True, slots=True)
class WorldFormed:
    """The world stands and all its members hold one state.

    Attributes:
        tick, step: the committed position that all members now hold.
        received: whether this node's state came from another member.
        took_s: seconds from the order to here.
    """

    generation: Generation
    tick: int
    step: int
    received: bool
    took_s: float


@dataclass(frozen=True, slots=True)
class Progress:
    """A committed step: sent for the first of a world, then at most ten times a second.

    Attributes:
        step, tick: committed, this step included.
        steps: training steps of the whole run.
        epoch: that the step belongs to, from 0.
        loss: the step's mean loss over the global batch.
        samples: of the global batch.
        step_s: seconds of the step.
        shares: units taken by each rank, in rank order.
        samples_per_s: over the last steps.
    """

    generation: Generation
    step: int
    tick: int
    steps: int
    epoch: int
    loss: float
    samples: int
    step_s: float
    shares: tuple[int, ...]
    samples_per_s: float


@dataclass(frozen=True, slots=True)
class WorldBroken:
    """A world that could not be formed or broke in use; the trainer keeps its state and waits.

    Attributes:
        tick, step: committed by this node.
        prepared: it holds the whole gradient of the step after ``step``.
        reason: the error's own words.
    """

    generation: Generation
    tick: int
    step: int
    prepared: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to Ping.

    Attributes:
        phase: what the training thread does now.
        in_phase_s: for how long it has.
        predicted_s: how long this phase should take; 0 when it has no bound of its own (waiting).
        generation: the world that it is in; None when in none, or in one without other members.
        quiet_s: seconds since anything came from the other members of that world.
    """

    seq: int
    phase: Phase
    in_phase_s: float
    predicted_s: float
    generation: Generation | None = None
    quiet_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The last tick is committed and the result written; the trainer holds the state until Shutdown.

    ``unwritten``: why this node could not write the result, with the remedy; empty when it did. The
    run is none the worse for it: the other members write theirs.
    """

    run_id: RunId
    tick: int
    step: int
    unwritten: str = ""


@dataclass(frozen=True, slots=True)
class RunFailed:
    """The job cannot go on *here*: a fault of its files, code or numbers, or of this machine with them.

    Attributes:
        where: the file, with the key or line.
        remedy: what to do.
        tick: the one whose part failed that this node was to compute: others try it without this node, and
            when it fails there, too, the job is at fault. None when the failure says that of no tick: while
            loading, for want of memory, or in a commit, which every member carries out alike.
    """

    run_id: RunId
    where: str
    message: str
    remedy: str
    tick: int | None = None


@dataclass(frozen=True, slots=True)
class DiskTrouble:
    """What this node cannot write while it trains, with the remedy; empty once it can again."""

    run_id: RunId
    text: str


Report = (
    TrainerReady
    | LocalBlob
    | WorldFormed
    | Progress
    | WorldBroken
    | Pong
    | RunFinished
    | RunFailed
    | DiskTrouble
)
