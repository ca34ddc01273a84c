"""World plans for tests: nodes a, b, c, ... on loopback."""

from __future__ import annotations

from collections.abc import Sequence

from daisychain.core.ids import Generation, NodeId, RunId, Term
from daisychain.core.shares import Capacity
from daisychain.core.world import Member, WorldPlan

EVEN = Capacity(fixed_s=0.001, per_unit_s=0.001)


def generation(counter: int = 1) -> Generation:
    """Return the generation of the plan with that ``counter``."""
    return Generation(Term(1, node_id(0)), counter, counter)


def node_id(index: int) -> NodeId:
    """Return the id of the ``index``-th test node; ids rise with the index."""
    return NodeId(f"{index:032x}")


def plan(
    nodes: Sequence[int],
    counter: int,
    run_id: str = "0" * 16 + "-1",
    capacities: Sequence[Capacity] | None = None,
    reason: str = "the test says so",
) -> WorldPlan:
    """Return a plan with ``nodes`` in rank order; ``counter`` orders generations."""
    members = tuple(
        Member(node_id(node), f"node{node}", "127.0.0.1", capacities[rank] if capacities else EVEN)
        for rank, node in enumerate(nodes)
    )
    return WorldPlan(generation(counter), RunId(run_id), members, reason)
