"""When a run has failed, and when a node has failed at it and the others go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daisychain.core.compute_world import Applicant
from daisychain.core.effects import Effect, Send, StartTrainer, Tell
from daisychain.core.events import JobsScanned, TrainerExited
from daisychain.core.failures import Failure, Failures, failed_twice, given_up, run_failed
from daisychain.core.ids import RunId, Term
from daisychain.core.jobs import REASON_MAX, JobState
from daisychain.core.messages import Goodbye, Heartbeat, OfferBlob, PlanWorld
from daisychain.core.node import NodeStatus, TrainerState, TrainerStatus
from daisychain.core.orders import FormWorld
from daisychain.core.reports import LocalBlob, RunFailed, WorldFormed
from unit.core.chains import CARD, READY, RUN, SETTINGS, Bench, info, node_id, status, with_trainer

WHY = "net.py:3: loss() raised KeyError: 7. Correct it and submit again."


def failed(tick: int | None, reason: str = WHY) -> TrainerStatus:
    """Return the status of a trainer that failed at ``tick``."""
    committed = 0 if tick is None else tick - 1
    return TrainerStatus(TrainerState.FAILED, RUN, tick=committed, reason=reason, failed_at=tick)


def at(tick: int) -> TrainerStatus:
    """Return the status of a trainer that has committed ``tick``."""
    return replace(READY, state=TrainerState.TRAINING, tick=tick)


def chain(*trainers: TrainerStatus, holds: bool = True) -> tuple[Applicant, ...]:
    """Return nodes 1, 2, ... with these trainers."""
    return tuple(Applicant(info(n), trainer, (), holds) for n, trainer in enumerate(trainers, 1))


def verdict(*trainers: TrainerStatus, known: tuple[Failure, ...] = ()) -> str:
    """Return what node 1 says of the run."""
    applicants = chain(*trainers)
    failures = (*Failures().take_in(RUN, applicants), *known)
    return run_failed(CARD, applicants, failures, info(1))


# --- the decision ----------------------------------------------------------------------------------------


def test_two_that_fail_at_one_tick_fail_the_run_and_are_both_named() -> None:
    assert verdict(failed(6), failed(6), at(5)) == f"on n1 and n2: {WHY}"
    assert verdict(at(5), failed(6, "net.py:3: no"), failed(6, "net.py:9: nor this")) == (
        "on n2: net.py:3: no; on n3: net.py:9: nor this"
    )


@pytest.mark.parametrize(
    "trainers",
    [
        pytest.param((failed(6), at(5)), id="one failed, the other has yet to try"),
        pytest.param((failed(6), at(9)), id="one failed, the other did it"),
        pytest.param((failed(6), failed(7), at(6)), id="two failed at different ticks"),
        pytest.param((failed(6), failed(6), at(6)), id="two failed, a third did it"),
        pytest.param((failed(None), failed(None), at(5), at(5), at(5)), id="two of five cannot load it"),
        pytest.param((failed(None), failed(6), at(5)), id="one cannot load it, one failed"),
        pytest.param((failed(6), replace(READY, state=TrainerState.LOADING)), id="the other still loads"),
        pytest.param((failed(6), TrainerStatus()), id="the other is about to load"),
        pytest.param((failed(6), replace(at(5), stalled=True)), id="the other is stalled"),
    ],
)
def test_the_run_goes_on_while_anybody_may_still_do_it(trainers: tuple[TrainerStatus, ...]) -> None:
    assert verdict(*trainers) == ""
    assert verdict(*reversed(trainers)) == ""


@pytest.mark.parametrize(
    "trainers",
    [(failed(6),), (failed(6), failed(9)), (failed(None), failed(None)), (failed(None), failed(6))],
)
def test_the_run_has_failed_when_nobody_is_left(trainers: tuple[TrainerStatus, ...]) -> None:
    names = " and ".join(f"n{number}" for number in range(1, len(trainers) + 1))
    assert verdict(*trainers) == f"on {names}: {WHY}"


def test_a_node_without_the_jobs_folder_is_not_waited_for() -> None:
    applicants = chain(failed(6), TrainerStatus(), holds=False)
    assert given_up(CARD, applicants, info(1)) == f"on n1: {WHY}"


def test_a_failure_counts_though_who_told_it_is_gone() -> None:
    gone = Failure(node_id(7), "n7", 6, WHY)
    assert verdict(failed(6), at(5), known=(gone,)) == f"on n1 and n7: {WHY}"
    assert verdict(failed(7), at(6), known=(gone,)) == ""


def test_one_node_that_fails_twice_is_no_two_nodes() -> None:
    known = Failures()
    known.take_in(RUN, chain(failed(6)))
    again = chain(failed(6, "net.py:4: another reason"), at(5))
    failures = known.take_in(RUN, again)
    assert [failure.reason for failure in failures] == ["net.py:4: another reason"]
    assert failed_twice(CARD, again, failures) == ""


def test_what_is_known_of_one_run_is_not_held_against_the_next() -> None:
    known = Failures()
    assert len(known.take_in(RUN, chain(failed(6)))) == 1
    assert known.take_in(RunId("bbbb-1"), chain(failed(6))) == ()


def test_a_long_reason_does_not_hide_the_other_node() -> None:
    told = verdict(failed(6, "a" * REASON_MAX), failed(6, "b" * REASON_MAX))
    assert len(told) <= REASON_MAX
    assert "on n1: aaa" in told and "on n2: bbb" in told


# --- the coordinator -------------------------------------------------------------------------------------


def plans(effects: list[Effect]) -> list[tuple[int, ...]]:
    """Return the members of every world that node 1's trainer, or node 2, was told to form."""
    orders = [e.order.plan for e in effects if isinstance(e, Tell) and isinstance(e.order, FormWorld)]
    sent = [e.message.plan for e in effects if isinstance(e, Send) and isinstance(e.message, PlanWorld)]
    return [tuple(int(m.node_id, 16) for m in plan.members) for plan in [*orders, *sent]]


class Trio:
    """Node 1, which coordinates and trains with nodes 2 and 3."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.others = {n: replace(status(reachable=(1, 2, 3), trainer=READY), holds=(RUN,)) for n in (2, 3)}
        self.bench.do(JobsScanned((CARD,)))
        for number in (2, 3):
            self.bench.link(number)
        self.keep(SETTINGS.settle_s + 0.1)
        self.formed(self.bench.ready(), 2, 3)

    def formed(self, effects: list[Effect], *others: int) -> None:
        """The world that node 1 is told of in ``effects`` stands at tick 5."""
        orders = [e.order for e in effects if isinstance(e, Tell) and isinstance(e.order, FormWorld)]
        generation = orders[-1].plan.generation
        self.bench.report(LocalBlob(generation, 0, b"a"))
        for rank, number in enumerate(others, 1):
            self.bench.hear(number, OfferBlob(generation, rank, b"a"))
        self.bench.report(WorldFormed(generation, 5, 5, False, 0.1))
        for number in others:
            self.tell(number, replace(at(5), generation=generation))

    def keep(self, seconds: float) -> list[Effect]:
        """Let time pass while both tell their status."""
        effects: list[Effect] = []
        until = self.bench.now + seconds
        while self.bench.now < until:
            effects += self.bench.wait(SETTINGS.heartbeat_s)
            for number, told in self.others.items():
                effects += self.bench.beat(number, told)
        return effects

    def tell(self, number: int, trainer: TrainerStatus) -> list[Effect]:
        """Node ``number`` tells of its trainer."""
        self.others[number] = with_trainer(self.others[number], trainer)
        return self.bench.beat(number, self.others[number])

    def jobs(self) -> tuple[JobState, str]:
        (card,) = self.bench.machine.view(self.bench.now).jobs
        return card.state, card.reason


def test_the_others_are_given_a_world_at_once_when_one_fails() -> None:
    trio = Trio()
    assert plans(trio.tell(3, failed(6))) == [(1, 2), (1, 2)]
    assert trio.jobs() == (JobState.RUNNING, "")
    peers = {peer.info.name: peer.standby for peer in trio.bench.machine.view(trio.bench.now).peers}
    assert WHY in peers["n3"]


def test_the_others_are_given_a_world_when_the_coordinators_own_trainer_fails() -> None:
    trio = Trio()
    effects = trio.bench.report(RunFailed(RUN, "net.py:3", "loss() raised KeyError: 7", "Correct it.", 6))
    assert plans(effects) == [(2, 3), (2, 3)]  # told to both
    effects = trio.bench.do(TrainerExited(RUN, "exited with code 0")) + trio.keep(20.0)
    assert not any(isinstance(effect, StartTrainer) for effect in effects)
    view = trio.bench.machine.view(trio.bench.now)
    assert view.coordinator == node_id(1)
    assert view.standby == "net.py:3: loss() raised KeyError: 7. Correct it."
    assert trio.jobs() == (JobState.RUNNING, "")


def test_the_second_failure_at_a_tick_ends_the_run_with_both_names() -> None:
    trio = Trio()
    trio.tell(3, failed(6))
    trio.bench.report(
        RunFailed(RUN, "net.py:3", "loss() raised KeyError: 7", "Correct it and submit again.", 6)
    )
    assert trio.jobs() == (JobState.FAILED, f"on n1 and n3: {WHY}")


def test_the_first_failure_is_remembered_when_its_node_is_gone_by_the_second() -> None:
    trio = Trio()
    trio.tell(3, failed(6))
    del trio.others[3]
    trio.bench.hear(3, Goodbye(1, "SIGTERM"))
    trio.tell(2, failed(6))
    assert trio.jobs() == (JobState.FAILED, f"on n2 and n3: {WHY}")


def test_a_new_coordinator_knows_of_the_failure_under_the_last_one() -> None:
    """Node 2 led; its own trainer failed, then it died. Node 1 takes over, and node 3 fails at that tick."""
    bench, leader = Bench(), Term(4, node_id(2))
    bench.do(JobsScanned((CARD,)))
    for number in (2, 3):
        bench.link(number)
    leads = replace(status(leader, (1, 2, 3), leading=True, trainer=at(5)), current=RUN)
    third = replace(status(leader, (1, 2, 3), trainer=at(5)), holds=(RUN,))
    bench.beat(2, leads)
    bench.beat(3, third)
    bench.ready()
    bench.beat(2, with_trainer(leads, failed(6)))
    bench.hear(2, Goodbye(1, "SIGTERM"))
    third = replace(third, reachable=(node_id(1), node_id(3)))
    bench.keep(3, third, 3.0)
    assert bench.machine.view(bench.now).coordinator == node_id(1)
    bench.beat(3, with_trainer(third, failed(6)))
    (card,) = bench.machine.view(bench.now).jobs
    assert (card.state, card.reason) == (JobState.FAILED, f"on n2 and n3: {WHY}")


def test_a_new_life_of_a_node_that_failed_trains_along() -> None:
    trio = Trio()
    trio.formed(trio.tell(3, failed(6)), 2)
    trio.bench.link(3, incarnation=2)
    reborn: NodeStatus = replace(status(reachable=(1, 2, 3), trainer=READY), holds=(RUN,), incarnation=2)
    trio.others[3] = reborn
    assert plans(trio.bench.beat(3, reborn) + trio.bench.wait(0.1)) == [(1, 2, 3)] * 3


def test_a_failure_travels_in_the_very_next_message() -> None:
    trio = Trio()
    effects = trio.bench.report(RunFailed(RUN, "net.py:3", "no", "Correct it.", 6))
    beats = [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Heartbeat)]
    assert {beat.status.trainer.failed_at for beat in beats} == {6}
