"""Orders beside the training: the newest plan wins, and whatever is under way is ended for it."""

from __future__ import annotations

from daisychain.core.orders import FormWorld, LeaveWorld, LoadRun, PeerBlobs, Shutdown
from daisychain.core.reports import Phase
from daisychain.core.world import WorldPlan
from daisychain.trainer.control import Desk
from daisychain.trainer.phases import PhaseClock
from support.plans import node_id, plan


class Attempt:
    """Notes what the desk does to it."""

    def __init__(self) -> None:
        self.aborted: list[str] = []
        self.quiet: float | None = None
        self.blobs: list[tuple[bytes, ...]] = []

    def abort(self, reason: str) -> None:
        self.aborted.append(reason)

    def deliver(self, blobs: tuple[bytes, ...]) -> None:
        self.blobs.append(blobs)

    def quiet_s(self) -> float | None:
        return self.quiet


ONE, TWO, THREE = (plan([0, 1], counter) for counter in (1, 2, 3))


def order(desk: Desk, *plans: WorldPlan) -> None:
    for each in plans:
        desk.take(FormWorld(each, 5.0))


def test_the_first_load_is_taken_and_a_second_is_not() -> None:
    desk = Desk()
    first = LoadRun(ONE.run_id, node_id(0), "a", "/jobs/a", "/runs/a")
    desk.take(first)
    desk.take(LoadRun(ONE.run_id, node_id(0), "b", "/jobs/b", "/runs/b"))
    assert desk.wait_load() == first


def test_a_plan_comes_with_the_moment_of_its_order() -> None:
    now = [100.0]
    desk = Desk(lambda: now[0])
    order(desk, ONE)
    now[0] = 103.0
    arrived = desk.wait_plan()
    assert arrived is not None
    assert (arrived.order.plan, arrived.at) == (ONE, 100.0)


def test_the_desk_tells_of_which_world_data_came_last_and_when() -> None:
    desk, attempt = Desk(), Attempt()
    assert desk.heard() == (None, 0.0)
    order(desk, ONE)
    assert desk.wait_plan() is not None
    desk.under_way(ONE.generation, attempt)
    assert desk.heard() == (None, 0.0)  # it forms: nothing has come yet
    attempt.quiet = 0.25
    assert desk.heard() == (ONE.generation, 0.25)
    desk.over(ONE.generation)
    assert desk.heard() == (None, 0.0)


def test_only_the_newest_of_several_plans_is_carried_out() -> None:
    desk = Desk()
    order(desk, ONE, THREE, TWO)
    arrived = desk.wait_plan()
    assert arrived is not None
    assert arrived.order.plan == THREE
    assert not desk.superseded


def test_a_plan_that_is_not_above_the_newest_is_ignored() -> None:
    desk = Desk()
    order(desk, TWO)
    desk.wait_plan()
    attempt = Attempt()
    desk.under_way(TWO.generation, attempt)
    order(desk, ONE, TWO)
    assert attempt.aborted == []
    assert not desk.superseded


def test_a_newer_plan_ends_what_is_under_way() -> None:
    desk = Desk()
    attempt = Attempt()
    assert desk.under_way(ONE.generation, attempt)
    order(desk, TWO)
    assert len(attempt.aborted) == 1
    assert desk.superseded


def test_an_attempt_that_begins_too_late_is_ended_at_once() -> None:
    desk = Desk()
    order(desk, TWO)
    attempt = Attempt()
    assert not desk.under_way(ONE.generation, attempt)
    assert attempt.aborted == ["a newer plan came"]


def test_an_attempt_that_is_over_is_left_alone() -> None:
    desk = Desk()
    attempt = Attempt()
    desk.under_way(ONE.generation, attempt)
    desk.over(ONE.generation)
    order(desk, TWO)
    desk.take(Shutdown("over"))
    assert attempt.aborted == []


def test_blobs_reach_only_the_generation_they_are_for() -> None:
    desk = Desk()
    attempt = Attempt()
    desk.under_way(TWO.generation, attempt)
    desk.take(PeerBlobs(ONE.generation, (b"x", b"y")))
    assert attempt.blobs == []
    desk.take(PeerBlobs(TWO.generation, (b"a", b"b")))
    assert attempt.blobs == [(b"a", b"b")]


def test_leaving_ends_that_generation_and_no_other() -> None:
    desk = Desk()
    attempt = Attempt()
    desk.under_way(TWO.generation, attempt)
    desk.take(LeaveWorld(ONE.generation, "old"))
    assert attempt.aborted == []
    desk.take(LeaveWorld(TWO.generation, "the node leaves"))
    assert attempt.aborted == ["the node leaves"]


def test_leaving_a_plan_that_was_taken_up_and_is_not_under_way_yet_ends_it_as_it_begins() -> None:
    desk = Desk()
    order(desk, TWO)
    assert desk.wait_plan() is not None
    desk.take(LeaveWorld(TWO.generation, "a member is silent"))
    attempt, later = Attempt(), Attempt()
    assert not desk.under_way(TWO.generation, attempt)
    assert attempt.aborted == ["a member is silent"]
    assert desk.under_way(THREE.generation, later)
    assert later.aborted == []


def test_a_plan_that_was_left_before_it_was_begun_is_dropped() -> None:
    desk = Desk()
    order(desk, TWO)
    desk.take(LeaveWorld(TWO.generation, "changed my mind"))
    assert not desk.superseded
    order(desk, THREE)
    arrived = desk.wait_plan()
    assert arrived is not None
    assert arrived.order.plan == THREE


def test_shutdown_ends_everything() -> None:
    desk = Desk()
    attempt = Attempt()
    desk.under_way(ONE.generation, attempt)
    desk.take(Shutdown("the run is over"))
    assert attempt.aborted == ["the run is over"]
    assert desk.wait_load() is None
    assert desk.wait_plan() is None
    assert desk.wait_end() == "the run is over"


def test_a_phase_tells_how_long_it_lasts_and_should_last() -> None:
    now = [10.0]
    phases = PhaseClock(lambda: now[0])
    phases.enter(Phase.COMPUTING, 0.5)
    now[0] = 12.0
    assert phases.read() == (Phase.COMPUTING, 2.0, 0.5)


def test_waiting_for_others_is_a_phase_of_its_own_without_a_bound() -> None:
    now = [10.0]
    phases = PhaseClock(lambda: now[0])
    phases.enter(Phase.EVALUATING, 0.5)
    now[0] = 11.0
    with phases.waiting():
        now[0] = 19.0
        assert phases.read() == (Phase.EXCHANGING, 8.0, 0.0)
    assert phases.read() == (Phase.EVALUATING, 0.0, 0.5)


def test_passing_a_state_is_a_phase_of_its_own_around_its_waits() -> None:
    now = [10.0]
    phases = PhaseClock(lambda: now[0])
    phases.enter(Phase.RECONCILING)
    with phases.transferring():
        now[0] = 12.0
        assert phases.read() == (Phase.TRANSFERRING, 2.0, 0.0)
        with phases.waiting():
            assert phases.read()[0] is Phase.EXCHANGING
        assert phases.read() == (Phase.TRANSFERRING, 0.0, 0.0)
    assert phases.read() == (Phase.RECONCILING, 0.0, 0.0)
