"""Which nodes train a run together, and why each of the others does not: a pure function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from daisychain.core.clique import largest_clique
from daisychain.core.ids import NodeId, RunId
from daisychain.core.node import NodeInfo, TrainerState, TrainerStatus
from daisychain.core.rounding import caution
from daisychain.core.shares import Capacity
from daisychain.core.world import Member


@dataclass(frozen=True, slots=True)
class Applicant:
    """One living node as the coordinator sees it.

    Attributes:
        reachable: whom it reaches and hears itself.
        holds: whether it has the job's very folder.
        doubtful: it is alive but under suspicion: not taken into anything new.
        standby: its own word why it does not train.
    """

    info: NodeInfo
    trainer: TrainerStatus
    reachable: tuple[NodeId, ...]
    holds: bool
    doubtful: bool = False
    standby: str = ""


@lru_cache(maxsize=64)
def series(version: str) -> tuple[str, ...]:
    """Return major and minor of a version: ``2.13.0+cpu`` -> ``("2", "13")``."""
    return tuple(version.partition("+")[0].split(".")[:2])


def mismatch(mine: NodeInfo, theirs: NodeInfo) -> str:
    """Return why two nodes cannot train together; empty when they can."""
    if series(mine.version) != series(theirs.version):
        return (
            f"{theirs.name} runs DaisyChain {theirs.version}, the coordinator {mine.version}: "
            "install the same version on every node"
        )
    if series(mine.torch_version) != series(theirs.torch_version):
        return (
            f"{theirs.name} has torch {theirs.torch_version}, the coordinator {mine.torch_version}: "
            "install the same major.minor version of torch on every node"
        )
    return ""


def unfit(applicant: Applicant, coordinator: NodeInfo, run_id: RunId) -> str:
    """Return why a node cannot be in a world of this run now; empty when it can."""
    reason = mismatch(coordinator, applicant.info)
    if reason:
        return reason
    trainer, name = applicant.trainer, applicant.info.name
    if trainer.run_id != run_id or trainer.state is TrainerState.NONE:
        return applicant.standby or f"{name} has no trainer for this run yet"
    if trainer.stalled:
        return f"{name}: {trainer.reason}"
    if trainer.state is TrainerState.LOADING:
        return f"{name} is loading the job"
    if trainer.state is TrainerState.FAILED:
        return f"{name}: {trainer.reason}"
    return ""


def fastest(applicants: Sequence[Applicant], count: int) -> frozenset[NodeId]:
    """Return the ``count`` nodes (>= 1) that train a run which more of them could.

    Whoever has trained it comes before those that have not, so that no committed step stays outside, and
    the most advanced one before all; then the fastest by what they measured on the job.
    """
    most = max(applicant.trainer.tick for applicant in applicants)

    def order(applicant: Applicant) -> tuple[bool, bool, float, NodeId]:
        trainer = applicant.trainer
        begun = trainer.generation is not None or trainer.broken is not None
        per_unit_s = trainer.capacity.per_unit_s if trainer.capacity is not None else float("inf")
        return (trainer.tick < most, not begun, per_unit_s, applicant.info.node_id)

    return frozenset(applicant.info.node_id for applicant in sorted(applicants, key=order)[:count])


def crowded(max_nodes: int, names: str) -> str:
    """Return why a node stands by that could train the job, too."""
    return f"max_nodes of the job is {max_nodes}: {names} train it"


@dataclass(frozen=True, slots=True)
class Selection:
    """The members in rank order, and the reason for each living node that is none of them.

    ``caution``: see `WorldPlan`. ``spare``: who could be a member, were there not enough of them.
    """

    members: tuple[Member, ...]
    left_out: tuple[tuple[NodeId, str], ...]
    caution: str = ""
    spare: frozenset[NodeId] = frozenset()


def compute_world(
    coordinator: NodeInfo,
    applicants: Sequence[Applicant],
    run_id: RunId,
    excluded: frozenset[NodeId],
    max_nodes: int = 0,
) -> Selection:
    """Return the largest world of nodes that fit the run and all reach each other, of ``max_nodes`` at most.

    Rank 0 is the coordinator when it is a member, the others follow by node id. ``excluded`` nodes held
    up a formation and wait for another chance. No member at all is a Selection without members.
    """
    fit: dict[NodeId, Applicant] = {}
    left_out: dict[NodeId, str] = {}
    for applicant in applicants:
        node_id = applicant.info.node_id
        reason = unfit(applicant, coordinator, run_id)
        if not reason and node_id in excluded:
            reason = f"{applicant.info.name} held up the last formation and waits for another try"
        if not reason and applicant.doubtful:
            reason = f"{applicant.info.name} is not heard well at the moment"
        if reason:
            left_out[node_id] = reason
        else:
            fit[node_id] = applicant
    if not fit:
        return Selection((), tuple(sorted(left_out.items())))
    links = {
        node_id: frozenset(
            other
            for other in fit
            if other != node_id and other in applicant.reachable and node_id in fit[other].reachable
        )
        for node_id, applicant in fit.items()
    }
    anchor = coordinator.node_id if coordinator.node_id in fit else None
    chosen = frozenset(largest_clique(links, anchor))
    for node_id, applicant in fit.items():
        if node_id not in chosen:
            missing = [fit[other].info.name for other in sorted(chosen) if other not in links[node_id]]
            left_out[node_id] = f"{applicant.info.name} and {', '.join(missing)} do not reach each other"
    spare: frozenset[NodeId] = frozenset()
    if 0 < max_nodes < len(chosen):
        kept = fastest([fit[node_id] for node_id in chosen], max_nodes)
        names = ", ".join(sorted(fit[node_id].info.name for node_id in kept))
        spare = chosen - kept
        for node_id in spare:
            left_out[node_id] = crowded(max_nodes, names)
        chosen = kept
    ranked = sorted(chosen, key=lambda node_id: (node_id != coordinator.node_id, node_id))
    members = tuple(
        Member(
            node_id=node_id,
            name=fit[node_id].info.name,
            host=fit[node_id].info.address.host,
            capacity=fit[node_id].trainer.capacity or Capacity(0.0, 1.0),
        )
        for node_id in ranked
    )
    told = caution((fit[node_id].info.name, fit[node_id].trainer.rounding) for node_id in ranked)
    return Selection(members, tuple(sorted(left_out.items())), told, spare)
