"""What goes wrong in one seeded run: a schedule drawn from the seed alone."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial

from simulation.chain import Plan, SimChain
from simulation.network import Weather
from simulation.node import MachineMaker, make_machine


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one seed showed: the simulated seconds to settle after healing."""

    seed: int
    settled_s: float


def plan_of(seed: int) -> Plan:
    """Return the chain of a seed: two to four nodes, good or bad weather."""
    dice = random.Random(seed * 7919 + 1)
    bad = dice.random() < 0.4
    weather = Weather(
        delay_s=dice.choice([0.0005, 0.002, 0.02]),
        jitter_s=dice.choice([0.0, 0.002, 0.05]) if bad else 0.001,
        lost=dice.choice([0.0, 0.02, 0.1]) if bad else 0.0,
        twice=dice.choice([0.0, 0.02]) if bad else 0.0,
    )
    return Plan(seed, nodes=dice.choice([1, 2, 2, 3, 3, 3, 4]), steps=dice.randrange(5, 40), weather=weather)


def strike(chain: SimChain, dice: random.Random) -> None:
    """Let one thing go wrong."""
    count = len(chain.nodes)
    index = dice.randrange(count)
    other = (index + dice.randrange(1, count)) % count if count > 1 else index
    restart_s = dice.uniform(0.05, 3.0)
    match dice.randrange(14):
        case 0 | 1:
            chain.kill(index)
            chain.time.after(restart_s, lambda: chain.start(index))
        case 2:
            chain.freeze(index)
            chain.time.after(dice.uniform(0.2, 5.0), lambda: chain.thaw(index))
        case 3:
            chain.cut(index, other)
        case 4:
            chain.partition({index})
        case 5:
            chain.reset(index, other)
        case 6:
            chain.freeze_trainer(index)
            chain.time.after(dice.uniform(0.2, 4.0), lambda: chain.thaw_trainer(index))
        case 7:
            chain.kill_trainer(index)
        case 8:
            chain.leave(index)
            chain.time.after(restart_s, lambda: chain.start(index))
        case 9:
            leaders = chain.leaders()
            if leaders:
                chain.kill(chain.nodes.index(leaders[0]))
        case 10:
            chain.freeze_agent(index)
            chain.time.after(dice.uniform(0.2, 5.0), lambda: chain.thaw(index))
        case 11:
            chain.cut(index, other)
            chain.time.after(restart_s, chain.mend)
        case 12:
            chain.partition(set(range(count // 2)))
        case _:
            chain.mend()


def run_seed(seed: int, make: MachineMaker = make_machine) -> Outcome:
    """Run one seed from start to settled; raises `Violation` with its story."""
    chain = SimChain(plan_of(seed), make)
    dice = random.Random(seed)
    for index in range(len(chain.nodes)):
        chain.time.after(dice.choice([0.0, 0.0, dice.uniform(0.0, 4.0)]), partial(chain.start, index))
    chain.run_for(dice.uniform(2.0, 4.5))
    if dice.random() < 0.3:
        card = chain.add_job("second", dice.randrange(1, 20), 2.0)
        chain.submit(dice.randrange(len(chain.nodes)), card)
    for _ in range(dice.randrange(1, 7)):
        strike(chain, dice)
        chain.run_for(dice.choice([0.0, 0.01, 0.1, 0.5, 1.0, 2.5]))
    return Outcome(seed, chain.must_settle())
