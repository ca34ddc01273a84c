"""Five jobs at once, and users, deaths and restarts between them: none is lost, and all agree in the end."""

from __future__ import annotations

import random

import pytest

from daisychain.core.ids import RunId
from daisychain.core.jobs import JobState
from simulation.chain import Plan, SimChain

SEEDS = 200
CHUNK = 50
JOBS, STEPS = 5, 6


def five_jobs(seed: int, nodes: int) -> SimChain:
    """Return a chain whose nodes all have five jobs, submitted in the order of their names."""
    chain = SimChain(Plan(seed, nodes, steps=STEPS))
    for number in range(2, JOBS + 1):
        chain.add_job(f"job {number}", STEPS, float(number))
    for index in range(nodes):
        chain.start(index)
    return chain


def starts(chain: SimChain) -> list[str]:
    """Return the runs in the order in which the first trainer of each was started."""
    lines = [line for line in chain.time.story.text().splitlines() if "starts a trainer of" in line]
    return list(dict.fromkeys(line.partition("trainer of ")[2] for line in lines))


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_five_jobs_end_in_order_through_the_deaths_of_two_nodes(first: int) -> None:
    for seed in range(first, first + CHUNK):
        dice = random.Random(seed)
        chain = five_jobs(seed, 3)
        chain.run_for(dice.uniform(3.0, 8.0))
        for leader in chain.leaders()[:1]:
            leader.kill()
        chain.run_for(dice.uniform(0.0, 4.0))
        up = [index for index, node in enumerate(chain.nodes) if node.up]
        chain.kill(dice.choice(up))
        chain.run_for(dice.uniform(0.0, 4.0))
        chain.must_settle()
        for node in chain.nodes:
            assert [card.state for card in node.cards()] == [JobState.FINISHED] * JOBS, seed
        assert starts(chain) == ["digits-1", *(f"job {number}-1" for number in range(2, JOBS + 1))], seed


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_all_agree_in_the_end_whatever_users_ask_for_while_nodes_die(first: int) -> None:
    for seed in range(first, first + CHUNK):
        dice = random.Random(seed)
        chain = five_jobs(seed, dice.choice([2, 3, 4]))
        for _ in range(dice.randrange(4, 14)):
            chain.run_for(dice.choice([0.0, 0.05, 0.4, 1.5, 3.0]))
            node = dice.randrange(len(chain.nodes))
            run_id = dice.choice(chain.nodes[0].jobs).run_id
            match dice.randrange(8):
                case 0:
                    chain.cancel(node, run_id)
                case 1 | 2:
                    chain.pause(node, run_id)
                case 3:
                    chain.resume(node, run_id)
                case 4:
                    chain.retry(node)
                case 5:
                    chain.kill(node)
                case 6:
                    chain.start(node)
                case _:
                    chain.kill_all()
                    for index in range(len(chain.nodes)):
                        chain.start(index)
        chain.must_settle()
        books = [{card.run_id: card.state for card in node.cards()} for node in chain.nodes]
        assert all(book == books[0] for book in books), f"seed {seed}: {books}"
        assert all(state.ended for state in books[0].values()), seed
        missing = {card.run_id for card in chain.nodes[0].jobs} - books[0].keys()
        assert missing == set(), seed


def test_a_pause_survives_the_restart_of_every_node_and_the_next_job_trains() -> None:
    chain = five_jobs(1, 3)
    while not any(card.step for card in chain.nodes[1].cards()):
        chain.run_for(0.05)
    chain.pause(1, RunId("digits-1"))
    chain.run_for(0.2)
    chain.kill_all()
    for index in range(3):
        chain.start(index)
    chain.run_for(40.0)
    for node in chain.nodes:
        states = {card.run_id: card.state for card in node.cards()}
        assert states.pop(RunId("digits-1")) is JobState.PAUSED
        assert set(states.values()) == {JobState.FINISHED}
    chain.must_settle()
    assert all(card.state is JobState.FINISHED for node in chain.nodes for card in node.cards())
