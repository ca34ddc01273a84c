"""What a node says of itself when a link opens, and in every heartbeat after it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from daisychain.core.ids import Address, Generation, NodeId, RunId, Term
from daisychain.core.jobs import JobCard
from daisychain.core.shares import Capacity


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """The facts of one start of one node: they do not change while its agent lives.

    Attributes:
        node_id: proven by the certificate of the link that carried this.
        name: for people; not unique.
        incarnation: rises by one at every start of the agent (persisted); the higher one is the
            later life.
        machine_id: tells two machines with a cloned state folder apart.
        address: where the node's control port listens, on the proven interface.
        version: DaisyChain's version; nodes train together only with equal major.minor.
        torch_version: e.g. ``2.13.0+cpu``; nodes train together only with equal major.minor.
        platform: ``linux``, ``darwin`` or ``win32``.
        cores: logical CPUs that this node may use.
        memory_bytes: memory that this node may use.
        device: ``cpu`` or e.g. ``cuda: NVIDIA GeForce GTX 970 (5.2)``.
    """

    node_id: NodeId
    name: str
    incarnation: int
    machine_id: str
    address: Address
    version: str
    torch_version: str
    platform: str
    cores: int
    memory_bytes: int
    device: str


class TrainerState(StrEnum):
    """Where the node's trainer stands, as its agent knows it."""

    NONE = "none"  # no trainer process
    LOADING = "loading"  # started: importing torch, reading data, measuring
    READY = "ready"  # loaded and in no world
    FORMING = "forming"  # entering a world
    TRAINING = "training"  # in a world
    DONE = "done"  # holds the final state and has written the result
    FAILED = "failed"  # the run failed here, and is not tried again in this life; reason says why


@dataclass(frozen=True, slots=True)
class TrainerStatus:
    """The trainer of one node, as told to every peer.

    Attributes:
        state: see TrainerState.
        run_id: the run it is loaded for; None when there is no trainer.
        generation: the world it is in or entering; None when in none.
        tick: committed ticks of the run: training steps and evaluations, in one rising count.
        step: committed training steps of the run.
        capacity: what it measured on this very job; None until READY.
        rounding: digest that tells how its machine rounds; empty until READY, and where the job promises no
            bits: nobody need compare it then.
        stalled: the agent has had no sign of life from it for too long.
        broken: the newest generation that it found broken; None when none was.
        reason: why it failed, broke or stalled, for people.
        failed_at: of a FAILED one, the tick whose part failed here; see `RunFailed`.
        trouble: what the node cannot write while it trains, with the remedy; empty when it can.
    """

    state: TrainerState = TrainerState.NONE
    run_id: RunId | None = None
    generation: Generation | None = None
    tick: int = 0
    step: int = 0
    capacity: Capacity | None = None
    rounding: str = ""
    stalled: bool = False
    broken: Generation | None = None
    reason: str = ""
    failed_at: int | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class HeldResult:
    """A run's result that a node has, whole. ``digest``: of its files, as of a job's (see `manifest`)."""

    run_id: RunId
    digest: str


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """Everything about a node that changes; the whole of it travels in each heartbeat.

    Attributes:
        incarnation: that of the sender.
        term: the highest term that the sender knows and has persisted.
        leading: whether the sender itself is the coordinator of ``term``.
        reachable: the members that the sender holds alive, itself included; sorted.
        jobs: the runs that the sender has or knows of and that are not over, those that ended of late, and
            those that ended though some peer still tells otherwise; bounded by JOBS_MAX.
        trainer: the sender's trainer.
        standby: why the sender does not train though a job runs; empty when it does.
        holds: the runs whose very job folder the sender has; bounded by JOBS_MAX.
        results: the results that the sender has, of the runs that ended last; bounded by ENDED_TOLD_MAX.
        current: the run that the sender trains or, leading, has chosen to be trained; None when none.
    """

    incarnation: int
    term: Term
    leading: bool
    reachable: tuple[NodeId, ...]
    jobs: tuple[JobCard, ...]
    trainer: TrainerStatus
    standby: str = ""
    holds: tuple[RunId, ...] = ()
    current: RunId | None = None
    results: tuple[HeldResult, ...] = ()


JOBS_MAX = 256
"""Most jobs told in a heartbeat: bounds its size, and what a peer can make us remember."""

ENDED_TOLD_MAX = 16
"""Most ended runs that every heartbeat tells: a long history must not be sent three times a second."""
