"""Chains that go on: waiting for worlds and steps, and what a fault cost by the journal's own times."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from support.waiting import until
from support.watched_node import WatchedNode

JOIN_S = 60.0


def trains_together(nodes: Sequence[WatchedNode], timeout_s: float = JOIN_S) -> None:
    """Wait until each of them has committed a step in a world of them all."""

    def together(after: int) -> bool:
        return all(node.world_size() == len(nodes) and node.step() > after for node in nodes)

    names = [node.name for node in nodes]
    until(partial(together, -1), timeout_s, f"no world of {names}")
    until(partial(together, max(node.step() for node in nodes)), timeout_s, f"no step of {names}")


def go_on_without(others: Sequence[WatchedNode]) -> None:
    """Wait until ``others`` commit a step in a world of their own."""
    until(lambda: all(node.world_size() == len(others) for node in others), 15.0, "the others form no world")
    before = others[0].step()
    until(lambda: others[0].step() > before, 10.0, f"nothing is committed after step {before}")


def next_step_s(journal: Sequence[dict[str, Any]], fault_at: float) -> float:
    """Return the seconds from a fault to the first step that another world committed after it.

    ``journal``: of a node with the right clock; ``fault_at``: Unix seconds just before the fault.
    """
    lines = [line for line in journal if "samples" in line]
    broken = [line["world"]["generation"] for line in lines if line["at"] < fault_at][-1]
    after = (line for line in lines if line["at"] >= fault_at and line["world"]["generation"] != broken)
    return float(next(after)["at"]) - fault_at
