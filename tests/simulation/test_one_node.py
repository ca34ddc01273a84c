"""A part of a step that cannot be computed: the others do it, and where nobody can, the run fails."""

from __future__ import annotations

import random
from functools import partial

import pytest

from daisychain.core.compute_world import Applicant
from daisychain.core.jobs import JobCard, JobState
from daisychain.core.node import NodeInfo, TrainerState
from simulation.chain import Plan, SimChain
from simulation.faults import strike
from simulation.node import MachineMaker, make_machine
from simulation.parts import WHY
from simulation.scenario import draw, draw_strike
from simulation.story import Violation

STEPS, STEP_S = 60, 0.03
SEEDS = 100
FAILED_S = 1.0
"""From the first failure to the word that the run has failed, on every node."""


def training(nodes: int, seed: int = 1, steps: int = STEPS) -> SimChain:
    """Return a chain whose nodes all train."""
    chain = SimChain(Plan(seed, nodes, steps=steps, step_s=STEP_S))
    for index in range(nodes):
        chain.start(index)
    assert chain.time.run(10.0, lambda: chain.newest_step() > 3), chain.time.story.text()
    return chain


def card(chain: SimChain, index: int) -> JobCard:
    machine = chain.nodes[index].machine
    assert machine is not None
    return next(job for job in machine.view(chain.time.now).jobs if job.name == "digits")


def failed_on(chain: SimChain, *indices: int) -> bool:
    return all(card(chain, index).state is JobState.FAILED for index in indices)


def leader(chain: SimChain) -> int:
    (found,) = chain.leaders()
    return chain.nodes.index(found)


@pytest.mark.parametrize("nodes", [2, 3, 5])
@pytest.mark.parametrize("coordinator", [True, False], ids=["the coordinator's", "a worker's"])
def test_the_others_finish_what_one_node_cannot_compute(nodes: int, coordinator: bool) -> None:
    chain = training(nodes)
    culprit = leader(chain) if coordinator else (leader(chain) + 1) % nodes
    chain.spoil_on(culprit, chain.newest_step() + 2)
    others = [index for index in range(nodes) if index != culprit]
    failed_at = chain.newest_step() + 1

    def past(index: int) -> bool:
        trainer = chain.nodes[index].trainer
        return trainer is not None and trainer.step > failed_at

    started = chain.time.now
    assert chain.time.run(started + 5.0, lambda: all(map(past, others))), chain.time.story.text()
    assert chain.time.now - started < 2 * STEP_S + 0.2
    machine = chain.nodes[culprit].machine
    assert machine is not None
    view = machine.view(chain.time.now)
    assert (view.trainer.state, view.trainer.failed_at, view.standby) == (
        TrainerState.FAILED,
        failed_at + 1,
        WHY,
    )
    chain.must_settle()
    assert {card(chain, index).state for index in range(nodes)} == {JobState.FINISHED}


@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_a_sample_that_no_node_can_compute_fails_the_run_and_two_nodes_are_named(nodes: int) -> None:
    chain = training(nodes)
    after = chain.add_job("second", 10, 2.0)
    for index in range(nodes):
        chain.rescan(index)
    chain.spoil_sample(chain.newest_step() + 2)
    assert chain.time.run(20.0, lambda: any(node.trainer and node.trainer.failed for node in chain.nodes))
    failed_at = chain.time.now
    assert chain.time.run(failed_at + 5.0, lambda: failed_on(chain, *range(nodes))), chain.time.story.text()
    assert chain.time.now - failed_at < FAILED_S
    (reason,) = {card(chain, index).reason for index in range(nodes)}
    names = [node.name for node in chain.nodes if node.name in reason.partition(":")[0]]
    assert len(names) == 2 and reason == f"on {names[0]} and {names[1]}: {WHY}"
    chain.must_settle()
    views = [node.machine.view(chain.time.now) for node in chain.nodes if node.machine is not None]
    assert all(
        [job.state for job in view.jobs if job.run_id == after.run_id] == [JobState.FINISHED]
        for view in views
    )


def test_a_job_that_fails_on_the_only_node_has_failed() -> None:
    chain = training(1)
    chain.spoil_sample(chain.newest_step() + 2)
    chain.must_settle()
    assert card(chain, 0).reason == f"on n0: {WHY}"


def test_a_node_started_anew_gets_another_chance() -> None:
    chain = training(3, steps=400)
    chain.spoil_on(2, chain.newest_step() + 2)
    assert chain.time.run(10.0, lambda: chain.nodes[2].trainer is None), chain.time.story.text()
    chain.kill(2)
    chain.start(2)
    assert chain.time.run(chain.time.now + 10.0, lambda: trains(chain, 2)), chain.time.story.text()


def trains(chain: SimChain, index: int) -> bool:
    trainer = chain.nodes[index].trainer
    return trainer is not None and trainer.room is not None and trainer.room.formed


def test_the_coordinators_death_between_two_failures_saves_no_run() -> None:
    """Its own trainer failed; it dies before the sample lands on the next one."""
    chain = training(4)
    first = leader(chain)
    step = chain.newest_step() + 2
    chain.spoil_on(first, step)
    assert chain.time.run(10.0, lambda: bool((trainer := chain.nodes[first].trainer) and trainer.failed))
    chain.spoil_sample(step)
    chain.run_for(0.002)  # its last word is on its way
    chain.kill(first)
    others = [index for index in range(4) if index != first]
    assert chain.time.run(chain.time.now + 10.0, lambda: failed_on(chain, *others)), chain.time.story.text()
    assert chain.nodes[first].name in card(chain, others[0]).reason
    failures = [line for line in chain.time.story.text().splitlines() if "fails at step" in line]
    assert len(failures) == 2, "a third node need not try"


def gentle(chain: SimChain, dice: random.Random) -> None:
    """Let one thing go wrong that leaves more than one node."""
    index, other = dice.sample(range(len(chain.nodes)), 2)
    match dice.randrange(5):
        case 0:
            chain.kill(index)
            chain.time.after(dice.uniform(0.05, 1.0), partial(chain.start, index))
        case 1:
            chain.leave(index)
            chain.time.after(dice.uniform(0.05, 1.0), partial(chain.start, index))
        case 2:
            chain.reset(index, other)
        case 3:
            chain.kill_trainer(index)
        case _:
            chain.freeze_trainer(index)
            chain.time.after(dice.uniform(0.1, 2.0), partial(chain.thaw_trainer, index))


def run_one_node(seed: int, make: MachineMaker = make_machine) -> None:
    """One node cannot compute its part of a step, and other things go wrong: the run is finished."""
    dice = random.Random(seed)
    nodes = dice.choice([3, 4, 5])
    chain = SimChain(Plan(seed, nodes, steps=dice.randrange(20, 60), step_s=0.05), make)
    chain.spoil_on(dice.randrange(nodes), dice.randrange(1, 20))
    for index in range(nodes):
        chain.start(index)
    chain.run_for(dice.uniform(3.0, 4.0))
    for _ in range(dice.randrange(0, 3)):
        gentle(chain, dice)
        chain.run_for(dice.choice([2.6, 3.0]))
    chain.must_settle()


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_a_fault_of_one_node_never_takes_the_run_from_the_others(first: int) -> None:
    for seed in range(first, first + 50):
        run_one_node(seed)


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_a_spoilt_sample_fails_the_run_on_every_node_whatever_else_goes_wrong(first: int) -> None:
    for seed in range(first, first + 50):
        dice = random.Random(seed + 77)
        plan = draw(seed).plan
        chain = SimChain(plan)
        chain.spoil_sample(dice.randrange(1, min(plan.steps, 40) + 1))
        for index in range(plan.nodes):
            chain.time.after(dice.choice([0.0, dice.uniform(0.0, 4.0)]), partial(chain.start, index))
        chain.run_for(dice.uniform(2.0, 4.5))
        for _ in range(dice.randrange(1, 5)):
            strike(chain, draw_strike(dice))
            chain.run_for(dice.choice([0.0, 0.01, 0.1, 0.5, 1.0, 2.5]))
        chain.must_settle()


# --- the simulator sees a core that decides wrongly ------------------------------------------------------


def _hasty(card: JobCard, applicants: tuple[Applicant, ...], *_: object) -> str:
    """One failure is enough."""
    return next(
        (f"on {a.info.name}: {WHY}" for a in applicants if a.trainer.state is TrainerState.FAILED), ""
    )


def _patient(
    card: JobCard, applicants: tuple[Applicant, ...], failures: object, coordinator: NodeInfo
) -> str:
    """No failure ever is."""
    return ""


@pytest.mark.parametrize(
    ("decide", "what"),
    [(_hasty, "is failed: on"), (_patient, "no step in")],
    ids=["hasty", "patient"],
)
def test_a_core_that_decides_wrongly_is_seen(
    decide: object, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daisychain.core.machine.run_failed", decide)
    with pytest.raises(Violation, match=what):
        if decide is _hasty:
            for seed in range(20):
                run_one_node(seed)
        else:
            chain = training(2)
            chain.spoil_sample(chain.newest_step() + 2)
            chain.must_settle()
