"""A read-only snapshot of what one node knows: what `daisychain status` shows."""

from __future__ import annotations

from dataclasses import dataclass

from daisychain.core.ids import Address, ClusterId, NodeId, Term
from daisychain.core.jobs import JobCard
from daisychain.core.node import NodeInfo, TrainerStatus
from daisychain.core.queue_view import QueuedJob
from daisychain.core.reports import Progress
from daisychain.core.world import WorldPlan


@dataclass(frozen=True, slots=True)
class PeerView:
    """One other node.

    Attributes:
        health: ``alive``, ``suspect``, ``dead`` or ``left``.
        silent_s: seconds since it was last heard.
        standby: why it does not train; empty when it does or nothing runs.
    """

    info: NodeInfo
    health: str
    silent_s: float
    trainer: TrainerStatus
    standby: str


@dataclass(frozen=True, slots=True)
class StrangerView:
    """An address that answered but was not admitted, or a neighbour of another cluster.

    ``reason`` names what does not fit and what would mend it.
    """

    address: Address
    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class ChainView:
    """What one node knows of the chain at one moment.

    Attributes:
        cluster_id: the cluster's public id.
        me: this node.
        term: the highest term known.
        coordinator: who leads; None while nobody does.
        peers: every other node that was ever admitted, by name then id.
        strangers: who was seen and not admitted.
        jobs: in queue order, the ended ones last.
        trainer: this node's trainer.
        world: the plan that this node's trainer is in or forming; None when in none.
        progress: the newest progress of this node's trainer in that world.
        standby: why this node does not train; empty when it does or nothing runs.
        waiting: what the coordinator waits for ("2 s of quiet in discovery"); empty otherwise.
        queue: the same runs as people are told of them, what trains first.
        caution: what a person should know of the world that trains, as far as this node knows it: its own
            trainer's, or the one that it coordinates; empty when there is nothing.
    """

    cluster_id: ClusterId
    me: NodeInfo
    term: Term
    coordinator: NodeId | None
    peers: tuple[PeerView, ...]
    strangers: tuple[StrangerView, ...]
    jobs: tuple[JobCard, ...]
    trainer: TrainerStatus
    world: WorldPlan | None
    progress: Progress | None
    standby: str
    waiting: str
    caution: str = ""
    queue: tuple[QueuedJob, ...] = ()
