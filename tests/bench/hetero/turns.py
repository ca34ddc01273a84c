"""Trainings of one job on the same machines, of which one has its turn while the others stand still."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bench.hetero.marks import Mark, Window, together
from support.waiting import until

STEADY_STEPS = 3
STEADY_S = 60.0
POLL_S = 0.05


class Contestant(Protocol):
    """One way to train on these machines, loaded and standing still."""

    name: str

    def resume(self) -> None:
        """Have it go on."""

    def pause(self) -> None:
        """Have every process of it stand still."""

    def marks(self) -> list[list[Mark]]:
        """Return the marks of each training that goes by itself."""


@dataclass(frozen=True)
class Pace:
    """How long a turn is: seconds after its first steps until it counts, and seconds that count."""

    warm_s: float
    window_s: float


def turn(contestant: Contestant, pace: Pace) -> float:
    """Return the samples/s of a contestant's turn."""
    contestant.resume()
    try:
        return watch(contestant, pace)
    finally:
        contestant.pause()


def watch(contestant: Contestant, pace: Pace) -> float:
    """Return the samples/s of a contestant that goes on before and after."""
    steady(contestant, time.time())
    time.sleep(pace.warm_s)
    began_at = time.time()
    time.sleep(pace.window_s)
    return together(contestant.marks(), Window(began_at, time.time()))


def steady(contestant: Contestant, since: float) -> None:
    """Wait until each of its trainings has committed some steps since then."""

    def goes_on() -> bool:
        time.sleep(POLL_S)
        return all(_since(marks, since) >= STEADY_STEPS for marks in contestant.marks())

    until(goes_on, STEADY_S, f"{contestant.name} does not go on")


def rounds(contestants: Sequence[Contestant], count: int, pace: Pace) -> dict[str, list[float]]:
    """Return the samples/s of each in every round, by its name; they take turns."""
    found: dict[str, list[float]] = {each.name: [] for each in contestants}
    for number in range(count):
        for each in contestants:
            found[each.name].append(turn(each, pace))
        told = ", ".join(f"{name} {speeds[-1]:.1f}" for name, speeds in found.items())
        print(f"round {number + 1}: samples/s {told}", flush=True)
    return found


def _since(marks: Sequence[Mark], since: float) -> int:
    return sum(1 for mark in marks if mark.at >= since)
