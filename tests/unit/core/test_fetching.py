"""Which run's folder a node fetches, from whom, and when it tries again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daisychain.core.effects import DropFetch, Effect, Fetch, Note, PaceBundles, Part, RecordJob, StartTrainer
from daisychain.core.events import Fetched, FetchFailed, JobsScanned, TrainerExited
from daisychain.core.fetching import pace_beside_training
from daisychain.core.ids import RunId
from daisychain.core.jobs import JobCard, JobState
from daisychain.core.node import NodeStatus, TrainerState
from unit.core.chains import CARD, LEADER, READY, RUN, SETTINGS, Bench, of, status

OTHER = replace(CARD, run_id=RunId("bbbb-1"), name="second", digest="e" * 64, submitted_at=11.0)


def holder(*cards: JobCard, current: RunId | None = None) -> NodeStatus:
    """The status of a coordinator that has the folders of these runs."""
    runs = tuple(card.run_id for card in cards)
    return replace(status(LEADER, (1, 2), leading=True), jobs=cards, holds=runs, current=current)


def linked(number: int = 2) -> Bench:
    bench = Bench()
    bench.do(JobsScanned(()))
    bench.link(number)
    return bench


def fetches(effects: list[Effect]) -> list[tuple[RunId, list[str]]]:
    return [(e.card.run_id, [s.name for s in e.sources]) for e in effects if isinstance(e, Fetch)]


def test_a_folder_that_a_peer_has_is_fetched_and_known_as_that_very_run() -> None:
    bench = linked()
    effects = bench.beat(2, holder(replace(CARD, state=JobState.RUNNING, step=7), current=RUN))
    assert fetches(effects) == [(RUN, ["n2"])]
    recorded = [e.card for e in effects if isinstance(e, RecordJob)]
    assert recorded == [CARD], "before it is fetched: its files alone would tell of a first submission"
    assert bench.machine.view(bench.now).standby == "fetching jobs/digits from n2"
    assert fetches(bench.keep(2, holder(CARD, current=RUN), 5.0)) == [], "it is said once"
    assert of(StartTrainer, bench.do(Fetched(RUN, Part.FOLDER))) == []
    assert bench.machine.view(bench.now).standby == "looking at the files that were fetched"
    assert of(StartTrainer, bench.do(JobsScanned((CARD,)))) != []


def test_another_peer_that_has_it_is_asked_too_and_one_that_died_no_more() -> None:
    bench = linked()
    bench.beat(2, holder(CARD))
    bench.link(3)
    third = replace(status(LEADER, (1, 2, 3)), holds=(RUN,))
    effects = bench.beat(3, third) + bench.keep(2, holder(CARD), 0.4)
    assert fetches(effects) == [(RUN, ["n2", "n3"])]
    effects = bench.keep(2, holder(CARD), SETTINGS.silence_ceiling_s)
    assert fetches(effects)[-1:] == [(RUN, ["n2"])]


def test_when_nobody_has_it_any_more_it_is_dropped_and_taken_up_again() -> None:
    bench = linked()
    bench.beat(2, holder(replace(CARD, state=JobState.RUNNING), current=RUN))
    told = replace(holder(replace(CARD, state=JobState.RUNNING), current=RUN), holds=())
    assert of(DropFetch, bench.keep(2, told, 0.4)) == [DropFetch(RUN, Part.FOLDER)]
    assert "nobody whom it reaches has it whole" in bench.machine.view(bench.now).standby
    assert fetches(bench.keep(2, holder(CARD, current=RUN), 0.4)) == [(RUN, ["n2"])]


def test_what_a_person_took_away_here_is_not_fetched_back() -> None:
    """It may be a deletion, which is believed only after a while."""
    bench = linked()
    bench.do(JobsScanned((CARD,)))
    assert fetches(bench.beat(2, holder(CARD, current=RUN))) == []
    assert fetches(bench.do(JobsScanned(()))) == []
    assert fetches(bench.keep(2, holder(CARD, current=RUN), 5.0)) == []
    again = replace(CARD, run_id=RunId(f"{RUN[:-1]}2"))
    other = replace(holder(replace(CARD, state=JobState.FINISHED), again), current=again.run_id)
    assert fetches(bench.keep(2, other, 1.0)) == [], "nor for another run of it"
    bench.do(TrainerExited(RUN, "the run is finished"))
    assert "was taken away here" in bench.machine.view(bench.now).standby


def test_what_the_chain_trains_comes_before_what_waits() -> None:
    bench = linked()
    assert fetches(bench.beat(2, holder(CARD, OTHER))) == [(RUN, ["n2"])]
    running = replace(OTHER, state=JobState.RUNNING)
    effects = bench.keep(2, holder(CARD, running, current=OTHER.run_id), 0.4)
    assert of(DropFetch, effects) == [DropFetch(RUN, Part.FOLDER)]
    assert fetches(effects) == [(OTHER.run_id, ["n2"])]
    effects = bench.do(Fetched(OTHER.run_id, Part.FOLDER)) + bench.keep(2, holder(CARD, running), 0.4)
    assert fetches(effects) == [(RUN, ["n2"])]


def refused(bench: Bench, reason: str) -> list[str]:
    """Let the fetch fail; return what is written to the log, and wait until it is tried again."""
    effects = bench.do(FetchFailed(RUN, Part.FOLDER, reason))
    began = bench.now
    while not fetches(bench.keep(2, holder(CARD), 0.1)):
        assert bench.now < began + 100.0
    return [note.text for note in of(Note, effects) if isinstance(note, Note)]


def test_a_fetch_that_fails_is_tried_again_after_doubling_waits() -> None:
    bench = linked()
    bench.beat(2, holder(CARD))
    waits = []
    for _ in range(8):
        began = bench.now
        refused(bench, "n2: no answer")
        waits.append(bench.now - began)
    assert waits == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60], abs=0.2)


def test_a_fetch_that_fails_is_said_once_for_each_reason_whatever_its_numbers() -> None:
    """A bundle over the budget is tried every minute for as long as it is over it."""
    bench = linked()
    bench.beat(2, holder(CARD))
    (said,) = refused(bench, "it takes 2.0 GiB, and of the 1.5 GiB free on the disk 1.0 GiB stay free")
    assert said.startswith("jobs/digits could not be fetched: it takes 2.0 GiB")
    assert refused(bench, "it takes 2.0 GiB, and of the 1.4 GiB free on the disk 1.0 GiB stay free") == []
    assert len(refused(bench, "n2: no answer")) == 1
    assert refused(bench, "n2: no answer") == []


def test_somebody_who_was_not_asked_yet_is_asked_at_once() -> None:
    bench = linked()
    bench.beat(2, holder(CARD))
    bench.do(FetchFailed(RUN, Part.FOLDER, "n2: it gave other bytes"))
    bench.link(3)
    effects = bench.beat(3, replace(status(LEADER, (1, 2, 3)), holds=(RUN,)))
    effects += bench.keep(2, holder(CARD), 0.4)
    assert fetches(effects) == [(RUN, ["n2", "n3"])]


def test_a_run_that_ended_is_not_fetched() -> None:
    bench = linked()
    bench.beat(2, holder(OTHER))
    ended = replace(OTHER, state=JobState.CANCELLED)
    effects = bench.keep(2, holder(ended), 0.4)
    assert of(DropFetch, effects) == [DropFetch(OTHER.run_id, Part.FOLDER)]
    assert fetches(bench.keep(2, holder(ended), 2.0)) == []


def test_a_job_whose_name_is_taken_here_by_another_is_fetched_all_the_same() -> None:
    bench = linked()
    bench.do(JobsScanned((replace(CARD, run_id=RunId("cccc-1"), digest="f" * 64),)))
    assert (RUN, ["n2"]) in fetches(bench.keep(2, holder(CARD), 1.0))


def test_bundles_are_slowed_while_somebody_trains_and_only_then() -> None:
    bench = linked()
    effects = bench.beat(2, holder(CARD, current=RUN))
    assert of(PaceBundles, effects) == []
    training = replace(holder(CARD, current=RUN), trainer=replace(READY, state=TrainerState.TRAINING))
    effects = bench.keep(2, training, 0.4)
    assert of(PaceBundles, effects) == [PaceBundles(pace_beside_training(SETTINGS))]
    effects = bench.keep(2, holder(CARD, current=RUN), 0.4)
    assert of(PaceBundles, effects) == [PaceBundles(0.0)]


def test_the_pace_leaves_a_step_that_is_all_communication_within_a_fifth() -> None:
    pace = pace_beside_training(SETTINGS)
    link = SETTINGS.link_bytes_per_s
    assert link / (link - pace) == pytest.approx(1.0 + SETTINGS.bundle_slowdown)
    assert SETTINGS.bundle_slowdown < 0.2
    assert pace > 1e6, "a bundle of 200 MB takes minutes, not hours"
