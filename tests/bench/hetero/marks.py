"""How far a training was when: marks, and the speeds that are read out of them. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Mark:
    """A committed step.

    Attributes:
        at: Unix seconds of its commit.
        samples: trained up to it.
    """

    at: float
    samples: int


@dataclass(frozen=True)
class Window:
    """A time in which something is measured, in Unix seconds."""

    began_at: float
    ended_at: float

    def of(self, marks: Sequence[Mark]) -> list[Mark]:
        """Return the marks within."""
        return [mark for mark in marks if self.began_at <= mark.at <= self.ended_at]


def samples_per_s(marks: Sequence[Mark], window: Window) -> float:
    """Return the speed from the first to the last mark in ``window``: no step counts by halves.

    Raises `ValueError` when there are fewer than two.
    """
    inside = window.of(marks)
    if len(inside) < 2:
        took_s = window.ended_at - window.began_at
        raise ValueError(f"{len(inside)} steps in {took_s:.1f} s: too few to tell a speed")
    return (inside[-1].samples - inside[0].samples) / (inside[-1].at - inside[0].at)


def together(trainings: Sequence[Sequence[Mark]], window: Window) -> float:
    """Return the sum of the speeds of trainings that go on side by side."""
    return sum(samples_per_s(marks, window) for marks in trainings)


def median_step_s(marks: Sequence[Mark], after: float, first: int, last: int) -> float:
    """Return the median time of the steps number ``first`` to ``last`` that were committed after a moment.

    The step that was under way then is number 1. Raises `ValueError` when there are not so many.
    """
    at = [mark.at for mark in marks if mark.at >= after]
    if len(at) < last:
        raise ValueError(f"{len(at)} steps since, {last} wanted")
    return statistics.median(at[number] - at[number - 1] for number in range(first - 1, last))


def ratio(values: Sequence[float], others: Sequence[float]) -> float:
    """Return the median over the rounds of a round's value over the other's, to three digits."""
    return round(statistics.median(a / b for a, b in zip(values, others, strict=True)), 3)
