"""One seeded story: a chain, what goes wrong with it in which order, and how it ends."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from simulation.chain import Plan, SimChain
from simulation.faults import Fault, Strike, strike
from simulation.liveness import LIVELY_S
from simulation.network import Weather
from simulation.node import MachineMaker, make_machine

SMALL: Mapping[int, int] = {1: 2, 2: 4, 3: 6, 4: 4}
"""Sizes of chains by weight: quick ones, for every run of the tests."""

WIDE: Mapping[int, int] = {
    **{1: 20, 2: 230, 3: 270, 4: 220, 5: 100, 6: 70},
    **{8: 40, 10: 20, 12: 12, 16: 10, 24: 4, 32: 4},
}
"""The same up to 32 nodes: what a large chain costs goes with the square of its size."""

LONG_STEPS = 1000
"""Of a run that still goes on when all is healed; it is cancelled once all train together."""

TRAINER_KILLS_MAX = 4
"""A node gives a run up at one more crash of its trainer: what it promises ends there."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What happens, all of it drawn from the seed.

    Attributes:
        starts: when each node starts.
        warm_up_s: before the first strike.
        left_alone_s: how long the chain is left as it is after the last strike, before it is healed.
    """

    plan: Plan
    starts: tuple[float, ...]
    warm_up_s: float
    strikes: tuple[Strike, ...]
    left_alone_s: float = 0.0

    def __str__(self) -> str:
        plan = self.plan
        lines = [
            f"{plan.nodes} nodes, {plan.steps} steps of {plan.step_s:g} s, {plan.weather}",
            *([] if plan.dropped_on is None else [f"the job lies on {plan.dropped_on} alone"]),
            f"they start at {', '.join(f'{start:.3f}' for start in self.starts)} s; "
            f"{self.warm_up_s:.3f} s later:",
            *(f"  {blow}" for blow in self.strikes),
            f"{self.left_alone_s:.3f} s later all is healed",
        ]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one scenario showed: the simulated seconds from healing until all were together again."""

    seed: int
    nodes: int
    together_s: float


def draw(seed: int, sizes: Mapping[int, int] = SMALL) -> Scenario:
    """Return the scenario of a seed."""
    dice = random.Random(seed * 7919 + 1)
    nodes = dice.choices(list(sizes), list(sizes.values()))[0]
    bad = dice.random() < 0.4
    weather = Weather(
        delay_s=dice.choice([0.0005, 0.002, 0.02]),
        jitter_s=dice.choice([0.0, 0.002, 0.05]) if bad else 0.001,
        lost=dice.choice([0.0, 0.02, 0.1]) if bad else 0.0,
        twice=dice.choice([0.0, 0.05]) if bad else 0.0,
        late=dice.choice([0.0, 0.05]) if bad else 0.0,
    )
    steps = dice.choice([dice.randrange(5, 40), LONG_STEPS])
    plan = Plan(
        seed,
        nodes,
        steps,
        weather=weather,
        wrong_clocks=dice.random() < 0.1,
        dropped_on=_dropped_on(seed, nodes),
    )
    starts = tuple(dice.choice([0.0, 0.0, dice.uniform(0.0, 4.0)]) for _ in range(nodes))
    strikes = _strikes(dice)
    alone = dice.random() < 0.1
    if alone:
        strikes = (*strikes, Strike(dice.choice([Fault.CUT_OFF, Fault.CUT_HALVES]), dice.randrange(32)))
    left_alone_s = LIVELY_S + 1.0 if alone else 0.0
    plan = replace(plan, max_nodes=dice.choice([0, 0, 0, 1, 2]))
    return Scenario(plan, starts, dice.uniform(2.0, 4.5), strikes, left_alone_s)


def _dropped_on(seed: int, nodes: int) -> tuple[int, ...] | None:
    """Return the nodes that have the folder from the start; by dice of its own: all else stays as it was."""
    dice = random.Random(seed * 104_729 + 3)
    if dice.random() < 0.5:
        return None
    return tuple(sorted(dice.sample(range(nodes), dice.choice([1, 1, max(1, nodes // 2)]))))


def _strikes(dice: random.Random) -> tuple[Strike, ...]:
    strikes: list[Strike] = []
    for _ in range(dice.randrange(1, 7)):
        blow = draw_strike(dice)
        if [earlier.fault for earlier in strikes].count(Fault.KILL_TRAINER) < TRAINER_KILLS_MAX:
            strikes.append(blow)
    return tuple(strikes)


def draw_strike(dice: random.Random) -> Strike:
    """Return one strike of any kind."""
    return Strike(
        dice.choice(list(Fault)),
        node=dice.randrange(32),
        other=dice.randrange(32),
        lasting_s=dice.uniform(0.05, 4.0),
        pause_s=dice.choice([0.0, 0.01, 0.1, 0.5, 1.0, 2.5]),
    )


def play(scenario: Scenario, make: MachineMaker = make_machine) -> Outcome:
    """Run a scenario from start to end; raises `Violation` with its story."""
    chain = SimChain(scenario.plan, make)
    for index in range(scenario.plan.nodes):
        chain.time.after(scenario.starts[index], partial(chain.start, index))
    chain.run_for(scenario.warm_up_s)
    for blow in scenario.strikes:
        strike(chain, blow)
        chain.run_for(blow.pause_s)
    chain.run_for(scenario.left_alone_s)
    return Outcome(scenario.plan.seed, scenario.plan.nodes, chain.must_settle())


def run_seed(seed: int, make: MachineMaker = make_machine, sizes: Mapping[int, int] = SMALL) -> Outcome:
    """Run the scenario of a seed."""
    return play(draw(seed, sizes), make)
