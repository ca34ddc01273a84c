"""A result in one node's folder ends the run once nobody writes the same result elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daisychain.core.events import JobsScanned, TrainerExited
from daisychain.core.ids import RunId
from daisychain.core.jobs import JobState
from daisychain.core.messages import PlanWorld
from daisychain.core.node import TrainerState
from daisychain.core.reports import LocalBlob, RunFinished, WorldFormed
from daisychain.core.written import Written
from unit.core.chains import CARD, LEADER, READY, RUN, SETTINGS, Bench, follower, generation, plan, status

DONE = replace(CARD, state=JobState.FINISHED)
RUNNING = replace(CARD, state=JobState.RUNNING)
LEADING = replace(status(LEADER, (1, 2), leading=True), current=RUN, jobs=(RUNNING,))
AT_WORK = replace(READY, state=TrainerState.TRAINING, generation=generation(1, LEADER))


def member() -> Bench:
    """Return node 1 in a world of two that node 2 coordinates."""
    bench = follower()
    bench.ready()
    bench.hear(2, PlanWorld(plan(1, (1, 2), LEADER)))
    bench.report(LocalBlob(generation(1, LEADER), 0, b"x"))
    bench.report(WorldFormed(generation(1, LEADER), 0, 0, False, 0.1))
    bench.beat(2, replace(LEADING, trainer=AT_WORK))
    assert bench.machine.view(bench.now).trainer.state is TrainerState.TRAINING
    return bench


def state(bench: Bench) -> JobState:
    """Return where the run stands, as node 1 tells it."""
    (card,) = bench.machine.view(bench.now).jobs
    return card.state


def test_a_run_goes_on_while_this_node_has_still_to_say_that_it_is_done() -> None:
    bench = member()
    bench.do(JobsScanned((DONE,)))  # the look came between the result and the trainer's word
    assert state(bench) is JobState.RUNNING
    bench.report(RunFinished(RUN, 110, 100))
    bench.beat(2, replace(LEADING, trainer=replace(AT_WORK, state=TrainerState.DONE)))
    assert state(bench) is JobState.FINISHED


def test_a_run_goes_on_while_another_member_writes_its_result() -> None:
    bench = member()
    bench.report(RunFinished(RUN, 110, 100))
    bench.do(JobsScanned((DONE,)))
    bench.keep(2, replace(LEADING, trainer=AT_WORK), 5.0)
    assert state(bench) is JobState.RUNNING
    bench.beat(2, replace(LEADING, trainer=replace(AT_WORK, state=TrainerState.DONE)))
    assert state(bench) is JobState.FINISHED


def test_a_member_that_is_gone_is_not_waited_for() -> None:
    bench = member()
    bench.report(RunFinished(RUN, 110, 100))
    bench.do(JobsScanned((DONE,)))
    bench.wait(SETTINGS.silence_ceiling_s + 1.0)  # node 2 is silent
    assert state(bench) is JobState.FINISHED


def test_a_trainer_that_dies_at_the_end_is_not_waited_for() -> None:
    bench = member()
    bench.beat(2, replace(LEADING, trainer=replace(AT_WORK, state=TrainerState.DONE)))
    bench.do(JobsScanned((DONE,)))
    assert state(bench) is JobState.RUNNING
    bench.do(TrainerExited(RUN, "killed by SIGKILL"))
    assert state(bench) is JobState.FINISHED


def test_a_result_of_a_run_that_nobody_trains_ends_it_at_once() -> None:
    bench = follower()
    bench.ready()
    bench.do(JobsScanned((DONE,)))
    assert state(bench) is JobState.FINISHED


@pytest.mark.parametrize("at_work", [(), (RunId("bbbb-1"),)])
def test_only_the_runs_at_work_are_held_back_and_told_once(at_work: tuple[RunId, ...]) -> None:
    written, other = Written(), replace(DONE, run_id=RunId("cccc-1"))
    cards = written.scanned((DONE, other), {RUN, *at_work})
    assert [card.state for card in cards] == [JobState.QUEUED, JobState.FINISHED]
    assert written.over({RUN}) == ()
    assert written.over(at_work) == (RUN,)
    assert written.over(at_work) == ()
