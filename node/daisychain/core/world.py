"""A world: the members of one process group, in rank order."""

from __future__ import annotations

from dataclasses import dataclass

from daisychain.core.ids import Generation, NodeId, RunId
from daisychain.core.shares import Capacity


@dataclass(frozen=True, slots=True)
class Member:
    """One admitted node: its place in the rank order is its place in the plan.

    Attributes:
        host: the numeric address that its gloo device binds.
        capacity: what it measured on this job; the first shares come from these alone.
    """

    node_id: NodeId
    name: str
    host: str
    capacity: Capacity


@dataclass(frozen=True, slots=True)
class WorldPlan:
    """What the coordinator hands to each member: rank 0 is ``members[0]``, the coordinator if it trains.

    ``reason`` says for people why this world was formed ("node b died", "node d joined"); ``caution`` what
    they should know of it before its first step (see `rounding.caution`), empty when there is nothing.
    """

    generation: Generation
    run_id: RunId
    members: tuple[Member, ...]
    reason: str
    caution: str = ""

    @property
    def world_size(self) -> int:
        """The number of members."""
        return len(self.members)

    def rank_of(self, node_id: NodeId) -> int | None:
        """Return the rank of ``node_id``, or None when it is not a member."""
        for rank, member in enumerate(self.members):
            if member.node_id == node_id:
                return rank
        return None
