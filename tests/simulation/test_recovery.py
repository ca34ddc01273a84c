"""How fast the decisions are, in simulated time: what the core adds to the detection of a fault."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from daisychain.core.ids import RunId
from daisychain.core.jobs import JobCard, JobState
from simulation.chain import Plan, SimChain
from simulation.network import Weather

STEP_S = 0.03


def training(nodes: int, steps: int = 400) -> SimChain:
    """Return a chain whose nodes all train."""
    chain = SimChain(Plan(1, nodes, steps=steps, step_s=STEP_S))
    for index in range(nodes):
        chain.start(index)
    chain.run_for(6.0)
    assert all(node.trainer is not None and node.trainer.step > 10 for node in chain.nodes)
    return chain


def next_commit(chain: SimChain, whose: set[int], bound_s: float = 10.0) -> float:
    """Return the seconds until all of ``whose`` committed a step beyond any that exists now."""
    started = chain.time.now
    trainers = [node.trainer for node in chain.nodes if node.trainer is not None]
    goal = max((trainer.step for trainer in trainers), default=0) + 1

    def done() -> bool:
        nodes = [chain.nodes[index] for index in whose]
        return all(node.trainer is not None and node.trainer.step > goal for node in nodes)

    assert chain.time.run(started + bound_s, done), chain.time.story.text()
    return chain.time.now - started


@pytest.mark.parametrize(
    ("fault", "survivors", "bound_s"),
    [
        pytest.param(lambda chain: chain.kill(0), {1, 2}, 0.2, id="the coordinator is killed"),
        pytest.param(lambda chain: chain.kill(2), {0, 1}, 0.2, id="a worker is killed"),
        pytest.param(lambda chain: (chain.kill(0), chain.kill(1)), {2}, 0.8, id="two of three are killed"),
        pytest.param(lambda chain: chain.leave(0), {1, 2}, 0.2, id="the coordinator leaves"),
        pytest.param(lambda chain: chain.leave(1), {0, 2}, 0.2, id="a worker leaves"),
        pytest.param(lambda chain: chain.kill_trainer(1), {0, 2}, 0.2, id="a trainer crashes"),
        pytest.param(lambda chain: chain.freeze(0), {1, 2}, 2.5, id="the coordinator is frozen"),
        pytest.param(lambda chain: chain.freeze(1), {0, 2}, 2.5, id="a worker is frozen"),
        pytest.param(lambda chain: chain.freeze_trainer(1), {0, 2}, 2.5, id="a trainer is frozen"),
        pytest.param(lambda chain: chain.partition({2}), {0, 1}, 2.5, id="a worker is cut off"),
        pytest.param(lambda chain: chain.partition({0}), {1, 2}, 2.5, id="the coordinator is cut off"),
        pytest.param(lambda chain: chain.reset(1, 2), {0, 1, 2}, 0.2, id="a link is reset"),
    ],
)
def test_survivors_commit_soon(
    fault: Callable[[SimChain], object], survivors: set[int], bound_s: float
) -> None:
    chain = training(3)
    fault(chain)
    assert next_commit(chain, survivors) < bound_s


def test_a_joiner_is_taken_in_at_once_when_it_is_ready() -> None:
    chain = SimChain(Plan(1, 4, steps=400, step_s=STEP_S))
    for index in range(3):
        chain.start(index)
    chain.run_for(6.0)
    chain.start(3)
    started = chain.time.now
    assert chain.time.run(started + 5, lambda: bool(chain.nodes[3].trainer and chain.nodes[3].trainer.loaded))
    assert next_commit(chain, {0, 1, 2, 3}) < 0.5


def test_three_that_start_together_train_together_from_the_first_step() -> None:
    chain = SimChain(Plan(1, 3, steps=400, step_s=STEP_S))
    for index in range(3):
        chain.start(index)
    assert chain.time.run(10.0, lambda: any(node.trainer and node.trainer.step for node in chain.nodes))
    assert all(node.trainer is not None and node.trainer.room is not None for node in chain.nodes)


def test_a_frozen_node_rejoins_when_it_wakes_and_disturbs_nobody() -> None:
    chain = training(3, steps=2000)
    chain.freeze(0)
    chain.run_for(4.0)
    term = chain.leaders()[-1].told
    chain.thaw(0)
    assert next_commit(chain, {0, 1, 2}) < 2.0
    after = chain.leaders()
    assert [leader.name for leader in after] == ["n1"]
    assert term is not None and after[0].told is not None
    assert after[0].told.status.term == term.status.term


def test_a_trainer_frozen_while_the_world_forms_holds_it_up_for_less_than_three_seconds() -> None:
    chain = SimChain(Plan(1, 4, steps=400, step_s=STEP_S))
    for index in range(3):
        chain.start(index)
    chain.run_for(6.0)
    chain.start(3)
    assert chain.time.run(20.0, lambda: _forming(chain, 3))
    chain.freeze_trainer(3)
    assert next_commit(chain, {0, 1, 2}) < 3.0


def test_a_node_frozen_while_the_world_forms_holds_it_up_for_less_than_three_seconds() -> None:
    chain = SimChain(Plan(1, 4, steps=400, step_s=STEP_S))
    for index in range(3):
        chain.start(index)
    chain.run_for(6.0)
    chain.start(3)
    assert chain.time.run(20.0, lambda: _forming(chain, 3))
    chain.freeze(3)
    assert next_commit(chain, {0, 1, 2}) < 3.0


def _forming(chain: SimChain, index: int) -> bool:
    trainer = chain.nodes[index].trainer
    return trainer is not None and trainer.plan is not None


@pytest.mark.parametrize("queue_s", [0.5, 2.4, 6.0])
def test_a_queue_that_gradients_fill_breaks_no_world(queue_s: float) -> None:
    """Steps take five seconds, and from one moment to the next all that is said comes ``queue_s`` late."""
    chain = SimChain(Plan(1, 3, steps=100, step_s=5.0))
    for index in range(3):
        chain.start(index)
    assert chain.time.run(30.0, lambda: all(node.trainer and node.trainer.step for node in chain.nodes))
    rooms = {node.trainer.room for node in chain.nodes if node.trainer is not None}
    for _ in range(12):
        chain.network.weather = Weather(delay_s=queue_s)
        chain.run_for(4.0)
        chain.network.weather = Weather()
        chain.run_for(1.0)
    assert len(rooms) == 1
    assert {node.trainer.room for node in chain.nodes if node.trainer is not None} == rooms
    chain.partition({2})
    assert next_commit(chain, {0, 1}, 60.0) < 2.5 * queue_s + 12.0  # who is gone is still found


def test_a_lone_survivor_ends_the_job() -> None:
    chain = training(3, steps=150)
    chain.kill(0)
    chain.kill(1)
    card = chain.nodes[2].jobs[0]

    def finished() -> bool:
        machine = chain.nodes[2].machine
        jobs = () if machine is None else machine.view(chain.time.now).jobs
        return any(job.run_id == card.run_id and job.state is JobState.FINISHED for job in jobs)

    assert chain.time.run(30.0, finished), chain.time.story.text()


def test_a_node_that_comes_late_does_not_train_an_ended_run_again() -> None:
    chain = SimChain(Plan(1, 2, steps=10))
    chain.start(0)
    chain.run_for(6.0)
    chain.start(1)
    chain.run_for(5.0)
    machine = chain.nodes[1].machine
    assert machine is not None and chain.nodes[1].trainer is None
    assert [card.state for card in machine.view(chain.time.now).jobs] == [JobState.FINISHED]
    chain.kill(0)
    chain.run_for(5.0)
    assert chain.nodes[1].trainer is None


def test_the_queue_is_worked_off_in_its_order() -> None:
    chain = SimChain(Plan(1, 2, steps=10))
    second = chain.add_job("second", 10, 2.0)
    for index in range(2):
        chain.start(index)
    assert chain.must_settle() < 20.0
    ends = [line for line in chain.time.story.text().splitlines() if "starts a trainer of" in line]
    assert [line.rsplit(" ", 1)[1] for line in ends[::2]] == ["digits-1", second.run_id]


def test_two_jobs_of_one_name_on_two_nodes_are_both_trained_in_order() -> None:
    chain = SimChain(Plan(1, 2, steps=30))
    other = JobCard(RunId("other-1"), "digits", "another digest", 0.5)
    chain.nodes[1].jobs = (other,)
    chain.nodes[1].steps[other.run_id] = 30
    for index in range(2):
        chain.start(index)
    chain.must_settle()
    held = [{card.digest for card in node.jobs} for node in chain.nodes]
    assert held[0] == held[1] == {chain.first.digest, other.digest}, (
        "each fetches the other's, beside its own"
    )
    ends = {(card.run_id, card.state) for node in chain.nodes for card in node.cards()}
    assert ends == {("digits-1", JobState.FINISHED), (other.run_id, JobState.FINISHED)}
