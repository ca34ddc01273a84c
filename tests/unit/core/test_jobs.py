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
    name=st.sampled_from(["digits", "a copy"]),
    state=st.sampled_from(JobState),
    revision=st.integers(0, 3),
    priority=st.integers(0, 1),
    max_nodes=st.integers(0, 1),
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


@given(st.lists(st.sampled_from(JobState), max_size=8), CARDS)
def test_no_older_word_undoes_pause_or_resume_in_whatever_order_they_come(
    words: list[JobState], seen: JobCard
) -> None:
    lives = [replace(seen, state=JobState.QUEUED, revision=0)]
    for word in words:
        if not word.ended:
            lives.append(advance(lives[-1], word))
    newest = lives[-1]
    assert newest.state is JobState.PAUSED if newest.revision % 2 else newest.state is not JobState.PAUSED
    for earlier in lives:
        assert merge(newest, earlier) == newest
        assert merge(earlier, newest) == newest


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


def test_two_jobs_of_one_name_are_two_jobs_and_both_have_their_turn() -> None:
    jobs = queue(CARD)
    other = replace(CARD, run_id=RunId("cccc-1"), digest="f" * 64, submitted_at=1.0)
    jobs.learn([other])
    both = {other.run_id, RUN}
    assert (jobs.differs(other), jobs.holds(other), jobs.holds(CARD)) == (True, False, True)
    assert jobs.pick(None, both) == replace(other, state=JobState.RUNNING)
    jobs.mark(other.run_id, JobState.FINISHED)
    assert jobs.pick(other.run_id, both) == replace(CARD, state=JobState.RUNNING)


def test_one_node_may_hold_both() -> None:
    other = replace(CARD, run_id=RunId("cccc-1"), name="digits", digest="f" * 64, submitted_at=1.0)
    jobs = queue(CARD, other)
    assert jobs.held() == (RUN, other.run_id)
    assert not jobs.differs(CARD)
    assert not jobs.differs(other)


def test_the_same_files_under_another_name_are_the_same_job() -> None:
    jobs = queue(replace(CARD, name="a copy"))
    assert jobs.holds(CARD)
    jobs.learn([CARD])
    assert [card.name for card in jobs.all()] == ["a copy"]


def test_the_queue_is_in_order_of_priority_then_submission_then_run_id() -> None:
    def card(run: str, priority: int, at: float) -> JobCard:
        return replace(CARD, run_id=RunId(run), digest=run, priority=priority, submitted_at=at)

    cards = [card("d", 0, 1.0), card("a", 0, 2.0), card("c", 0, 2.0), card("b", 3, 9.0), card("e", -3, 0.0)]
    jobs = queue(*cards)
    assert [c.run_id for c in jobs.all()] == ["b", "d", "a", "c", "e"]
    order, current = [], None
    while picked := jobs.pick(current, {c.run_id for c in cards}):
        order.append(current := picked.run_id)
        jobs.mark(picked.run_id, JobState.FINISHED)
    assert order == ["b", "d", "a", "c", "e"]


def test_a_later_job_of_higher_priority_takes_nothing_from_the_one_that_trains() -> None:
    jobs = queue(CARD)
    assert jobs.pick(None, {RUN}) == replace(CARD, state=JobState.RUNNING)
    jobs.scanned([CARD, replace(SECOND, priority=9)])
    picked = jobs.pick(RUN, {RUN, SECOND.run_id})
    assert picked is not None
    assert picked.run_id == RUN


def test_a_paused_run_is_not_trained_and_keeps_its_place() -> None:
    jobs = queue(CARD, SECOND)
    third = replace(SECOND, run_id=RunId("cccc-1"), name="third", digest="f" * 64, submitted_at=12.0)
    jobs.learn([third])
    runs = {RUN, SECOND.run_id, third.run_id}
    jobs.pick(None, runs)
    jobs.mark(RUN, JobState.PAUSED, "paused by the user")
    picked = jobs.pick(RUN, runs)
    assert picked is not None
    assert picked.run_id == SECOND.run_id
    jobs.resume(RUN)
    assert jobs.pick(SECOND.run_id, runs) == picked, "who trains is not put aside for who resumes"
    assert [card.run_id for card in jobs.all()] == [RUN, SECOND.run_id, third.run_id]
    jobs.mark(SECOND.run_id, JobState.FINISHED)
    picked = jobs.pick(SECOND.run_id, runs)
    assert picked is not None
    assert picked.run_id == RUN


def test_pausing_and_resuming_is_recorded_each_time_and_survives_a_restart() -> None:
    jobs = queue(CARD)
    assert jobs.to_record() == []
    jobs.mark(RUN, JobState.PAUSED, "paused by the user")
    (paused,) = jobs.to_record()
    assert (paused.state, paused.revision) == (JobState.PAUSED, 1)
    again = JobQueue([paused])
    again.scanned([CARD])
    assert again.get(RUN) == paused
    assert again.to_record() == []
    again.resume(RUN)
    (resumed,) = again.to_record()
    assert (resumed.state, resumed.revision) == (JobState.QUEUED, 2)
    again.learn([paused])
    assert again.get(RUN) == resumed


def test_what_a_person_asked_for_is_told_and_kept_though_the_folder_is_elsewhere() -> None:
    jobs = queue(CARD)
    jobs.asked(SECOND)
    jobs.learn([replace(SECOND, run_id=RunId("cccc-1"), revision=2)])
    assert [card.run_id for card in jobs.told()] == [RUN, SECOND.run_id, "cccc-1"]
    jobs.prune(set())
    assert len(jobs.all()) == 3


def test_the_ledger_keeps_an_ended_run_from_being_trained_again() -> None:
    jobs = JobQueue([replace(CARD, state=JobState.FINISHED)])
    jobs.scanned([CARD])
    assert jobs.pick(None, {RUN}) is None
    assert jobs.to_record() == []


def test_each_end_is_recorded_once() -> None:
    jobs = queue(CARD)
    jobs.mark(RUN, JobState.CANCELLED, "by the user")
    assert [card.run_id for card in jobs.to_record()] == [RUN]
    assert jobs.to_record() == []


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


def test_a_peer_that_tells_of_ever_new_runs_fills_no_memory() -> None:
    jobs = queue(CARD)
    for number in range(4 * JOBS_MAX):
        run = replace(SECOND, run_id=RunId(f"e-{number}"), submitted_at=float(number))
        jobs.asked(run)
        jobs.mark(run.run_id, JobState.FINISHED)
        assert [card.run_id for card in jobs.to_record()] == [run.run_id]
    kept = [len(it) for it in vars(jobs).values() if isinstance(it, dict | set | frozenset | list)]
    assert max(kept) <= JOBS_MAX
