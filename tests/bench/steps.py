"""Committed steps as a node recorded them, and what a trial reads out of them. Imports nothing but Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

USUAL_STEPS = 20
"""Steps before a join that tell what one usually takes."""


@dataclass(frozen=True)
class StepLine:
    """One committed step of one node.

    Attributes:
        at: Unix seconds of its commit.
        step: committed steps, this one included.
        size: members of the world that committed it.
        world: tells one world of this node from the next.
        step_s: seconds that it took.
    """

    at: float
    step: int
    size: int
    world: str
    step_s: float


@dataclass(frozen=True)
class Join:
    """One node that came in.

    Attributes:
        took_s: from its trainer being ready to the first committed step with it.
        pause_s: from the last step without it to the first one with it, less what a step usually takes.
        start_to_first_step_s: from the start of its process.
    """

    took_s: float
    pause_s: float
    start_to_first_step_s: float


def next_after(steps: Sequence[StepLine], fault_at: float) -> StepLine | None:
    """Return the first step that another world committed than the one which a fault at ``fault_at`` met."""
    before = [line for line in steps if line.at < fault_at]
    world = before[-1].world if before else ""
    return next((line for line in steps if line.at >= fault_at and line.world != world), None)


def recovery_s(survivors: Sequence[Sequence[StepLine]], fault_at: float) -> float | None:
    """Return the seconds from a fault until every survivor had committed a step in a new world."""
    nexts = [next_after(steps, fault_at) for steps in survivors]
    found = [line.at - fault_at for line in nexts if line is not None]
    return max(found) if found and len(found) == len(nexts) else None


def join(steps: Sequence[StepLine], size: int, started_at: float, ready_at: float) -> Join | None:
    """Return how a node came into a world of ``size``, by the record of a member that was there before it."""
    for index, line in enumerate(steps):
        if line.at >= ready_at and line.size == size:
            before = steps[max(0, index - USUAL_STEPS) : index]
            usual_s = median(each.step_s for each in before) if before else 0.0
            pause_s = line.at - before[-1].at - usual_s if before else 0.0
            return Join(line.at - ready_at, max(0.0, pause_s), line.at - started_at)
    return None
