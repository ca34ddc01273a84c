"""Every node dies and comes back: the run goes on at the greatest step that any of their disks holds."""

from __future__ import annotations

import random
from functools import partial

import pytest

from daisychain.core.compute_world import Selection
from daisychain.core.jobs import JobCard
from daisychain.core.rendezvous import Rendezvous
from daisychain.core.world_phase import Roll
from simulation.chain import Plan, SimChain
from simulation.node import MachineMaker, make_machine
from simulation.test_can_fail import with_part

SEEDS, CHUNK = 200, 25
TOGETHER_S = 1.5
"""Machines that come back within so long are in the first world: it waits for quiet and for loading."""


def trained(seed: int, make: MachineMaker = make_machine) -> tuple[SimChain, random.Random]:
    """Return a chain of two to four nodes that has trained for a while, and the seed's dice."""
    dice = random.Random(seed)
    chain = SimChain(Plan(seed, dice.choice([2, 3, 4]), steps=400, step_s=0.03), make)
    for index in range(len(chain.nodes)):
        chain.start(index)
    chain.run_for(dice.uniform(5.0, 8.0))
    return chain, dice


def lose_all(chain: SimChain, dice: random.Random) -> int:
    """Kill or end every node, all at once or one after the other; return the greatest step on a disk."""
    for index in dice.sample(range(len(chain.nodes)), len(chain.nodes)):
        if dice.random() < 0.2:
            chain.leave(index)
        else:
            chain.kill(index)
        chain.run_for(dice.choice([0.0, 0.0, 0.3, 1.0]))
    chain.run_for(0.2)
    assert not any(node.up or node.trainer for node in chain.nodes)
    return max(step for node in chain.nodes for step, _ in node.disk.saved.values())


def first_world(chain: SimChain) -> list[int]:
    """Let time pass until a world is formed; return its members' steps at that moment."""

    def members() -> list[int]:
        trainers = [node.trainer for node in chain.nodes if node.trainer is not None]
        return [trainer.step for trainer in trainers if trainer.room is not None and trainer.room.formed]

    assert chain.time.run(chain.time.now + 30.0, lambda: bool(members())), chain.time.story.text()
    return members()


def goes_on_where_the_disks_are(seed: int, make: MachineMaker = make_machine) -> None:
    chain, dice = trained(seed, make)
    greatest = lose_all(chain, dice)
    for index in range(len(chain.nodes)):
        chain.time.after(dice.uniform(0.0, TOGETHER_S), partial(chain.start, index))
    steps = first_world(chain)
    if set(steps) != {greatest} or len(steps) != len(chain.nodes):
        chain.time.fail(f"{len(steps)} of {len(chain.nodes)} nodes go on at {steps}, disks hold {greatest}")
    chain.must_settle()


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_nodes_that_come_back_together_go_on_at_the_greatest_step_on_any_disk(first: int) -> None:
    for seed in range(first, first + CHUNK):
        goes_on_where_the_disks_are(seed)


@pytest.mark.parametrize("seed", range(20))
def test_a_node_that_comes_back_late_with_more_steps_passes_them_on(seed: int) -> None:
    chain, dice = trained(seed)
    last = dice.randrange(len(chain.nodes))
    for index in range(len(chain.nodes)):
        if index != last:
            chain.kill(index)
    chain.run_for(3.0)  # alone, it trains on
    chain.kill(last)
    greatest = max(step for step, _ in chain.nodes[last].disk.saved.values())
    for index in range(len(chain.nodes)):
        if index != last:
            chain.start(index)
    chain.run_for(4.0)
    chain.start(last)

    def together() -> bool:
        trainers = [node.trainer for node in chain.nodes]
        return all(t is not None and t.room is not None and t.step >= greatest for t in trainers)

    assert chain.time.run(chain.time.now + 10.0, together), chain.time.story.text()
    chain.must_settle()


class Impatient(Rendezvous):
    """Goes on with whoever is ready first, as soon as some disk held a step."""

    def _first_world_waits(
        self, roll: Roll, card: JobCard, selection: Selection, begun: bool, now: float
    ) -> str:
        return "" if begun else super()._first_world_waits(roll, card, selection, begun, now)


def test_a_coordinator_that_does_not_wait_is_seen() -> None:
    with pytest.raises(AssertionError, match="disks hold"):
        for seed in range(20):
            goes_on_where_the_disks_are(seed, with_part("rendezvous", Impatient))
