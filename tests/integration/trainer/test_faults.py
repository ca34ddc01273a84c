"""Trainers die, freeze, wake, join and leave in mid-run; the others go on, and no newer world is disturbed.

The job here has no end in sight, so that one set of trainers serves every test.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from daisychain.core.ids import Generation
from daisychain.core.orders import FormWorld, LeaveWorld, PeerBlobs
from daisychain.core.reports import LocalBlob, Phase, Pong, Progress, WorldBroken, WorldFormed
from support.hand_world import HandTrainer, HandWorld, hand_world
from support.job_folders import counting_job
from support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


TRAINERS = 5
"""One dies, one loses its agent, three are left for the last test."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandWorld]:
    folder = tmp_path_factory.mktemp("faults")
    with hand_world(counting_job(folder / "counting", 1_000_000), folder / "state") as found:
        found.start(TRAINERS)
        yield found


@pytest.fixture
def three(world: HandWorld) -> list[HandTrainer]:
    """Three living trainers in a world that has begun to train."""
    members = [trainer for trainer in world.trainers if not trainer.gone][:3]
    assert len(members) == 3
    generation = world.form(members)
    for member in members:
        world.progress(member, generation)
    return members


def steps(trainer: HandTrainer) -> list[int]:
    """Return the steps in a trainer's record, which must be each once and in order."""
    found = [line["step"] for line in trainer.lines()]
    assert found == list(range(1, len(found) + 1))
    return found


def broke(trainer: HandTrainer, generation: Generation) -> bool:
    return bool(trainer.found(WorldBroken, lambda each: each.generation == generation))


def formed(trainer: HandTrainer, generation: Generation) -> WorldFormed:
    return trainer.wait(WorldFormed, lambda each: each.generation == generation)[1]


def test_after_a_kill_the_others_commit_their_next_step_within_a_second(
    world: HandWorld, three: list[HandTrainer]
) -> None:
    a, b, c = three
    current = a.found(WorldFormed)[-1][1].generation
    killed_at = b.kill()
    for survivor in (a, c):
        survivor.wait(WorldBroken, lambda each: each.generation == current)
    noticed_s = time.monotonic() - killed_at
    generation = world.form([a, c])
    took_s = max(world.progress(survivor, generation) for survivor in (a, c)) - killed_at
    print(f"a kill: noticed by both survivors after {noticed_s:.3f} s, next step after {took_s:.3f} s")
    assert took_s <= 1.0
    assert not formed(a, generation).received
    assert not formed(c, generation).received


def test_a_joiner_receives_the_state_and_the_record(world: HandWorld, three: list[HandTrainer]) -> None:
    a, b, _ = three
    joiner = next(each for each in world.trainers if not each.gone and each not in three)
    paused_at = time.monotonic()
    generation = world.form([a, b, joiner])
    resumed_at = max(world.progress(member, generation) for member in (a, b, joiner))
    print(f"a join: the others paused for {resumed_at - paused_at:.3f} s")
    assert resumed_at - paused_at < 0.5
    received = formed(joiner, generation)
    assert received.received
    assert received.step > 0
    assert formed(a, generation).step == received.step
    target = received.step + 20
    until(lambda: len(steps(joiner)) >= target, 20, "the joiner's record to grow")


def test_one_frozen_in_mid_run_is_left_behind_and_comes_back_with_the_right_state(
    world: HandWorld, three: list[HandTrainer]
) -> None:
    a, b, c = three
    stuck = a.found(WorldFormed)[-1][1].generation
    frozen_at = b.freeze()
    try:
        generation = world.form([a, c])  # no survivor notices by itself: the agents' word ends the sums
        resumed_at = max(world.progress(survivor, generation) for survivor in (a, c))
        print(f"a freeze: from the plan without it to the next step {resumed_at - frozen_at:.3f} s")
        assert resumed_at - frozen_at < 1.0
    finally:
        b.wake()
    b.wait(WorldBroken, lambda each: each.generation == stuck)
    behind = b.found(WorldBroken, lambda each: each.generation == stuck)[0][1]
    target = world.progress_of(a).step + 30
    world.reach(a, target)
    assert not broke(a, generation)
    assert not broke(c, generation)
    again = world.form([a, b, c])
    back = formed(b, again)
    assert back.received
    assert back.step >= target > behind.step
    world.progress(b, again)
    until(lambda: len(steps(b)) > back.step, 20, "its record to be whole again")


def test_one_frozen_while_a_world_forms_holds_it_up_less_than_three_seconds(
    world: HandWorld, three: list[HandTrainer]
) -> None:
    a, b, c = three
    plan = world.plan(three)
    ordered_at = time.monotonic()
    world.order(plan, three, timeout_s=1.5)
    blobs = [
        member.wait(LocalBlob, lambda each: each.generation == plan.generation)[1].blob for member in three
    ]
    b.freeze()
    try:
        for member in three:
            member.tell(PeerBlobs(plan.generation, tuple(blobs)))
        for survivor in (a, c):
            survivor.wait(WorldBroken, lambda each: each.generation == plan.generation)
        given_up_s = time.monotonic() - ordered_at
        generation = world.form([a, c])
        took_s = max(world.progress(survivor, generation) for survivor in (a, c)) - ordered_at
        print(f"frozen while forming: given up after {given_up_s:.2f} s, next step after {took_s:.2f} s")
        assert took_s < 3.0
    finally:
        b.wake()
    b.wait(WorldBroken, lambda each: each.generation == plan.generation)
    target = world.progress_of(a).step + 30
    world.reach(a, target)
    assert not broke(a, generation)
    assert formed(b, world.form(three)).received


def test_a_newer_plan_ends_a_formation_that_waits_for_a_silent_member(
    world: HandWorld, three: list[HandTrainer]
) -> None:
    a, _, c = three
    stuck = world.plan(three)
    world.order(stuck, [a, c], timeout_s=60.0)  # the third never hears of it
    for member in (a, c):
        member.wait(LocalBlob, lambda each: each.generation == stuck.generation)
    started_at = time.monotonic()
    generation = world.form([a, c])
    assert max(world.progress(member, generation) for member in (a, c)) - started_at < 1.0
    assert not broke(a, stuck.generation), "a plan that was replaced is no broken world"


def test_an_older_plan_is_ignored(world: HandWorld, three: list[HandTrainer]) -> None:
    older, newer = world.plan(three), world.plan(three)
    world.order(newer, three)
    world.spread(newer.generation, three)
    for member in three:
        formed(member, newer.generation)
        member.tell(FormWorld(older, 10.0))
        member.tell(PeerBlobs(older.generation, (b"x", b"y", b"z")))
    target = world.progress_of(three[0]).step + 20
    for member in three:
        world.reach(member, target)
        assert not member.found(LocalBlob, lambda each: each.generation == older.generation)
        assert not broke(member, newer.generation)


def test_a_trainer_told_to_leave_keeps_its_state_and_waits(
    world: HandWorld, three: list[HandTrainer]
) -> None:
    a, b, c = three
    generation = a.found(WorldFormed)[-1][1].generation
    for member in three:
        member.tell(LeaveWorld(generation, "its node leaves"))
    left = [member.wait(WorldBroken, lambda each: each.generation == generation)[1] for member in three]
    assert all("its node leaves" in each.reason for each in left)
    assert max(each.step for each in left) - min(each.step for each in left) <= 1
    idle = a.ping(901)
    assert idle.phase is Phase.IDLE
    again = world.form([c, b, a])
    assert formed(a, again).step >= max(each.step for each in left)


def test_pings_are_answered_while_it_trains_and_while_it_waits_for_a_frozen_member(
    world: HandWorld, three: list[HandTrainer]
) -> None:
    a, b, _ = three
    seen = {a.ping(seq).phase for seq in range(100, 140)}
    assert seen <= {Phase.COMPUTING, Phase.EXCHANGING, Phase.COMMITTING}
    b.freeze()
    try:
        until(lambda: a.ping(time.monotonic_ns()).in_phase_s > 0.3, 10, "it to wait for the frozen one")
        waiting: Pong = a.ping(141)
        assert waiting.phase is Phase.EXCHANGING
        assert waiting.predicted_s == 0.0
    finally:
        b.wake()
    target = world.progress_of(a).step + 5
    world.reach(a, target)


def test_a_trainer_ends_when_its_agent_is_gone(world: HandWorld, three: list[HandTrainer]) -> None:
    a, b, c = three
    c.hang_up()
    assert c.process.wait(5) == 3
    generation = world.form([a, b])
    world.progress(a, generation)


def test_progress_comes_at_most_ten_times_a_second(world: HandWorld, three: list[HandTrainer]) -> None:
    a = three[0]
    first = len(a.found(Progress))
    world.reach(a, world.progress_of(a).step + 200)
    arrivals = [at for at, _ in a.found(Progress)][first:]
    assert len(arrivals) <= 10 * (arrivals[-1] - arrivals[0]) + 2
