"""From a scenario that breaks a promise to a shorter one that still does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from simulation.network import Weather
from simulation.node import MachineMaker, make_machine
from simulation.scenario import Scenario, play
from simulation.story import Violation

TRIES_MAX = 150


def broken(scenario: Scenario, make: MachineMaker = make_machine) -> Violation | None:
    """Return the promise that a scenario breaks; None when it breaks none."""
    try:
        play(scenario, make)
    except Violation as violation:
        return violation
    return None


def shrink(
    scenario: Scenario, violation: Violation, make: MachineMaker = make_machine
) -> tuple[Scenario, Violation]:
    """Return the shortest scenario found on the way down from a broken one, and the promise that it breaks.

    Every step leaves something out; one that no longer breaks any promise is not taken.
    """
    tries = 0
    while True:
        for shorter in _shorter(scenario):
            tries += 1
            if tries > TRIES_MAX:
                return scenario, violation
            found = broken(shorter, make)
            if found is not None:
                scenario, violation = shorter, found
                break
        else:
            return scenario, violation


def _shorter(scenario: Scenario) -> Iterator[Scenario]:
    """Yield what the scenario is without one thing or another, the most first."""
    plan, strikes = scenario.plan, scenario.strikes
    for nodes in sorted({plan.nodes // 2, plan.nodes - 1} - {0, plan.nodes}):
        yield replace(scenario, plan=replace(plan, nodes=nodes), starts=scenario.starts[:nodes])
    for place in range(len(strikes)):
        yield replace(scenario, strikes=strikes[:place] + strikes[place + 1 :])
    if scenario.left_alone_s:
        yield replace(scenario, left_alone_s=0.0)
    if plan.weather != Weather():
        yield replace(scenario, plan=replace(plan, weather=Weather()))
    if plan.wrong_clocks:
        yield replace(scenario, plan=replace(plan, wrong_clocks=False))
    if any(scenario.starts):
        yield replace(scenario, starts=(0.0,) * plan.nodes)
