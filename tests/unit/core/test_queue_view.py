"""What `daisychain jobs` tells of each run, and the pace from which it says how long it takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daisychain.core.ids import RunId
from daisychain.core.jobs import JobCard, JobState
from daisychain.core.node import TrainerState, TrainerStatus
from daisychain.core.pace import LEAST_S, WINDOW_S, Pace
from daisychain.core.queue import JobQueue
from daisychain.core.queue_view import ENDED_SHOWN_MAX, QueuedJob, Situation, ordinal, queue_view
from unit.core.chains import CARD, RUN

SECOND = replace(CARD, run_id=RunId("bbbb-1"), name="second", digest="e" * 64, submitted_at=11.0)
THIRD = replace(CARD, run_id=RunId("cccc-1"), name="third", digest="f" * 64, submitted_at=12.0)
RUNNING = replace(CARD, state=JobState.RUNNING, step=40, steps=100)
TRAINS = TrainerStatus(TrainerState.TRAINING, RUN)
ALL = {RUN, SECOND.run_id, THIRD.run_id}
AT = Situation(RUN, (("ada", TRAINS), ("bob", TRAINS), ("cem", TrainerStatus())), ALL, 2.0)


def seen(at: Situation, *cards: JobCard) -> list[QueuedJob]:
    jobs = JobQueue(())
    jobs.learn(cards)
    return list(queue_view(jobs.all(), at))


def test_each_run_has_its_place_its_workers_its_time_and_its_reason() -> None:
    first, second, third, over = seen(
        AT,
        THIRD,
        RUNNING,
        SECOND,
        replace(CARD, run_id=RunId("aaaa-0"), state=JobState.FAILED, submitted_at=0),
    )
    assert (first.place, first.workers, first.eta_s, first.waits) == (1, ("ada", "bob"), 30.0, "")
    assert (second.place, second.workers, second.eta_s) == (2, (), None)
    assert second.waits == "2nd: waits for digits"
    assert third.waits == "3rd: waits for digits"
    assert (over.place, over.waits) == (0, "")


def test_what_trains_is_first_whatever_came_since() -> None:
    urgent = replace(SECOND, priority=9)
    assert [job.label for job in seen(AT, urgent, RUNNING)] == ["digits", "second"]


def test_a_paused_run_says_so_and_nobody_waits_for_it() -> None:
    paused = replace(CARD, state=JobState.PAUSED, reason="paused by the user", revision=1)
    at = replace(AT, current=None, trainers=AT.trainers[2:], steps_per_s=None)
    first, second, third = seen(at, paused, SECOND, THIRD)
    assert (first.place, first.waits) == (1, "paused by the user")
    assert second.waits == "about to begin"
    assert third.waits == "3rd: waits for second"


@pytest.mark.parametrize(
    ("card", "at", "why"),
    [
        (replace(CARD, min_nodes=5), AT, "waits for 5 nodes, 3 are here"),
        (replace(CARD, min_nodes=2), replace(AT, trainers=AT.trainers[:1]), "waits for 2 nodes, 1 is here"),
        (CARD, replace(AT, available=set()), "1st: no node that is here has its folder"),
        (CARD, replace(AT, waiting="2 s of quiet in discovery"), "waits for 2 s of quiet in discovery"),
    ],
)
def test_the_first_says_what_it_waits_for(card: JobCard, at: Situation, why: str) -> None:
    idle = replace(at, trainers=tuple((name, TrainerStatus()) for name, _ in at.trainers), current=None)
    assert seen(idle, card)[0].waits == why


def test_who_loads_it_is_named() -> None:
    loads = replace(TRAINS, state=TrainerState.LOADING)
    assert seen(replace(AT, trainers=(("ada", loads),)), RUNNING)[0].waits == "is loaded by ada"


def test_two_jobs_of_one_name_are_told_apart_also_where_one_waits_for_the_other() -> None:
    other = replace(SECOND, name="digits")
    assert [(job.label, job.waits) for job in seen(AT, RUNNING, other)] == [
        ("digits@dddddd", ""),
        ("digits@eeeeee", "2nd: waits for digits@dddddd"),
    ]


def test_places_are_named_as_people_do() -> None:
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 22, 112)] == (
        ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "112th"]
    )


def test_a_pace_is_known_after_some_steps_and_forgotten_with_the_run() -> None:
    pace = Pace()
    assert pace.steps_per_s(RUN, 0, 0.0) is None
    for second in range(11):
        pace.seen(RUN, 4 * second, float(second))
    assert pace.steps_per_s(RUN, 40, 10.0) == pytest.approx(4.0)
    assert pace.steps_per_s(SECOND.run_id, 40, 10.0) is None
    pace.seen(SECOND.run_id, 7, 11.0)
    assert pace.steps_per_s(SECOND.run_id, 9, 11.0 + LEAST_S / 2) is None, "too short a time"
    assert pace.steps_per_s(SECOND.run_id, 7, 11.0 + LEAST_S) is None, "no step"
    assert pace.steps_per_s(SECOND.run_id, 13, 11.0 + LEAST_S) == pytest.approx(2.0)


def test_a_pace_follows_the_world_of_the_last_half_minute() -> None:
    pace = Pace()
    for second in range(100):
        pace.seen(RUN, min(second, 50) * 10, float(second))
    assert pace.steps_per_s(RUN, 500, 99.0) is None, "it has stood still for longer than the window"
    for second in range(100, 100 + int(WINDOW_S) + 2):
        pace.seen(RUN, 500 + second - 100, float(second))
    assert pace.steps_per_s(RUN, 531, 131.0) == pytest.approx(1.0)


def test_a_long_history_does_not_hide_the_queue() -> None:
    over = [
        replace(CARD, run_id=RunId(f"e-{n}"), name=f"e{n}", submitted_at=float(n), state=JobState.FINISHED)
        for n in range(3 * ENDED_SHOWN_MAX)
    ]
    first, *ended = seen(AT, RUNNING, *over)
    assert first.card == RUNNING
    assert [job.card for job in ended] == over[-ENDED_SHOWN_MAX:], "the last ones"


def test_a_withdrawn_run_is_shown_until_a_newer_one_of_its_name_is_there() -> None:
    edited = replace(CARD, state=JobState.WITHDRAWN, reason="superseded")
    assert [job.card for job in seen(AT, edited, SECOND)] == [SECOND, edited]
    newer = replace(CARD, run_id=RunId("ffff-1"), digest="9" * 64, submitted_at=12.0)
    assert [job.card for job in seen(AT, edited, SECOND, newer)] == [SECOND, newer]
    finished = replace(CARD, state=JobState.FINISHED)
    assert finished in [job.card for job in seen(AT, finished, newer)], "a result is worth telling of"
