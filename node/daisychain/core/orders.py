"""What an agent tells its trainer, over their private socket pair."""

from __future__ import annotations

from dataclasses import dataclass

from daisychain.core.ids import Generation, NodeId, RunId
from daisychain.core.world import WorldPlan

CHECKPOINT_FOLDER = "checkpoints"
"""In a run's folder: written by the trainer, removed by it or its agent once the run has ended."""

CHECKPOINT_EVERY_S = 30.0
"""Between two checkpoints of a small state, unless a person wants another pace."""


@dataclass(frozen=True, slots=True)
class LoadRun:
    """The first order, once: load this job and measure it; answered by TrainerReady or RunFailed.

    Attributes:
        node_id: whose trainer this is (finds its rank in a plan).
        job_folder: the job's folder (``jobs/<name>``), read, and written only for ``result/``.
        run_folder: this node's own folder for the run (log, metrics, checkpoints).
        checkpoint_every_s: seconds between two checkpoints of a small state.
        cache_folder: where data that does not fit into memory is kept converted, for every run of this
            node; "" = nowhere.
        cache_max_bytes: most bytes in it; 0 = as the disk's free space has it.
        hidden: what job code must not read, where the kernel can hide it: state folder, key, other jobs.
        memory_max_bytes: most that the trainer's process may allocate; 0 = as the machine has it.
    """

    run_id: RunId
    node_id: NodeId
    job_name: str
    job_folder: str
    run_folder: str
    checkpoint_every_s: float = CHECKPOINT_EVERY_S
    cache_folder: str = ""
    cache_max_bytes: int = 0
    hidden: tuple[str, ...] = ()
    memory_max_bytes: int = 0


@dataclass(frozen=True, slots=True)
class FormWorld:
    """Leave any world, form this one, reconcile, train; answered by LocalBlob, then WorldFormed.

    A plan whose generation is not above the trainer's own is ignored. ``timeout_s`` bounds the
    formation from the order's arrival; past it the attempt is abandoned (WorldBroken).
    """

    plan: WorldPlan
    timeout_s: float


@dataclass(frozen=True, slots=True)
class PeerBlobs:
    """The gloo address blobs of every rank of ``generation``, in rank order."""

    generation: Generation
    blobs: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class LeaveWorld:
    """Abort ``generation`` (formed or forming) and wait for the next plan; keeps the state."""

    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class Ping:
    """Answered at once by Pong, whatever the training thread does."""

    seq: int


@dataclass(frozen=True, slots=True)
class Shutdown:
    """End the process: the run ended everywhere, was cancelled, or the node leaves."""

    reason: str


Order = LoadRun | FormWorld | PeerBlobs | LeaveWorld | Ping | Shutdown
