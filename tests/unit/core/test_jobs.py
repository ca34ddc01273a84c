from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from daisychain.core.ids import RunId
from daisychain.core.jobs import JobCard, JobState, advance, merge
from daisychain.core.node import ENDED_TOLD_MAX, JOBS_MAX
from daisychain.core.queue import JobQueue
from unit.core.chains import CARD, RUN

CARDS = st.builds(
    replace,
    st.just(CARD),
    submitted_at=st.sampled_from([1.0, 2.0]),
    state=st.sampled_from(JobState),
    reason=st.sampled_from(["", "a", "b"]),
    step=st.integers(0, 3),
    steps=st.sampled_from([0, 3]),
)
SECOND = replace(CARD, run_id=RunId("bbbb-1"), name="second", digest="e" * 64, submitted_at=11.0)


@given(CARDS, CARDS, CARDS)
def test_what_nodes_know_together_does_not_depend_on_who_tells_first(
    a: JobCard, b: JobCard, c: JobCard
) -> None:
    assert merge(a, b) == merge(b, a)
    assert merge(merge(a, b), c) == merge(a, merge(b, c))
    assert merge(a, a) == a


def test_what_ended_stays_ended() -> None:
    finished = replace(CARD, state=JobState.FINISHED)
    for state in JobState:
        assert advance(finished, state).state is JobState.FINISHED
    assert merge(finished, CARD).state is JobState.FINISHED
    assert advance(CARD, JobState.RUNNING).state is JobState.RUNNING


def queue(*cards: JobCard) -> JobQueue:
    jobs = JobQueue(())
    jobs.scanned(cards)
    return jobs


def test_the_first_submitted_that_somebody_can_train_is_picked_and_stays() -> None:
    jobs = queue(SECOND, CARD)
    both = {RUN, SECOND.run_id}
    picked = jobs.pick(None, both)
    assert picked is not None
    assert picked.run_id == RUN
    assert picked.state is JobState.RUNNING
    jobs.learn([replace(SECOND, submitted_at=0.0)])
    assert jobs.pick(RUN, both) == picked
    jobs.mark(RUN, JobState.FAILED, "no")
    second = jobs.pick(RUN, both)
    assert second is not None
    assert second.run_id == SECOND.run_id


def test_a_run_that_nobody_can_train_is_passed_over() -> None:
    picked = queue(CARD, SECOND).pick(None, {SECOND.run_id})
    assert picked is not None
    assert picked.run_id == SECOND.run_id


def test_a_run_that_was_running_goes_before_the_queue() -> None:
    jobs = queue(CARD)
    jobs.learn([replace(SECOND, state=JobState.RUNNING)])
    picked = jobs.pick(None, {RUN, SECOND.run_id})
    assert picked is not None
    assert picked.run_id == SECOND.run_id


def test_a_copy_that_differs_from_ours_is_not_picked() -> None:
    jobs = queue(CARD)
    other = replace(CARD, run_id=RunId("cccc-1"), digest="f" * 64, submitted_at=1.0)
    jobs.learn([other])
    assert jobs.differs(other)
    assert jobs.pick(None, {other.run_id}) is None


def test_the_ledger_keeps_an_ended_run_from_being_trained_again() -> None:
    jobs = JobQueue([replace(CARD, state=JobState.FINISHED)])
    jobs.scanned([CARD])
    assert jobs.pick(None, {RUN}) is None
    assert jobs.newly_ended() == []


def test_each_end_is_recorded_once() -> None:
    jobs = queue(CARD)
    jobs.mark(RUN, JobState.CANCELLED, "by the user")
    assert [card.run_id for card in jobs.newly_ended()] == [RUN]
    assert jobs.newly_ended() == []


def test_only_holders_tell_of_queued_runs_and_forgotten_ones_vanish() -> None:
    jobs = queue(CARD)
    jobs.learn([SECOND])
    assert [card.run_id for card in jobs.told()] == [RUN]
    assert jobs.held() == (RUN,)
    jobs.prune({SECOND.run_id})
    assert jobs.get(SECOND.run_id) is not None
    jobs.prune(set())
    assert jobs.get(SECOND.run_id) is None
    assert jobs.get(RUN) is not None


def test_a_long_history_is_not_told_with_every_heartbeat_but_to_whoever_believes_otherwise() -> None:
    ended = [
        replace(CARD, run_id=RunId(f"e-{n}"), submitted_at=float(n), state=JobState.FINISHED)
        for n in range(100)
    ]
    jobs = queue(SECOND)
    jobs.learn(ended)
    told = [card.run_id for card in jobs.told()]
    assert told[0] == SECOND.run_id
    assert told[1:] == [f"e-{n}" for n in range(99, 99 - ENDED_TOLD_MAX, -1)]
    assert "e-3" in [card.run_id for card in jobs.told({RunId("e-3")})]


def test_the_book_is_bounded_and_forgets_ended_runs_first() -> None:
    ended = [replace(CARD, run_id=RunId(f"e-{n}"), state=JobState.FINISHED) for n in range(JOBS_MAX + 50)]
    jobs = queue(CARD)
    jobs.learn(ended)
    assert len(jobs.all()) == JOBS_MAX
    assert jobs.get(RUN) is not None
    jobs.learn([SECOND])
    assert jobs.get(SECOND.run_id) is not None
    assert len(jobs.told()) <= JOBS_MAX
