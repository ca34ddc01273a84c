"""Which result of a run is the chain's, and who fetches it."""

from __future__ import annotations

from dataclasses import replace

from daisychain.core.effects import DropFetch, Effect, Fetch, Part
from daisychain.core.events import Fetched, FetchFailed, JobsScanned
from daisychain.core.ids import RunId
from daisychain.core.jobs import JobState
from daisychain.core.node import ENDED_TOLD_MAX, HeldResult, NodeStatus
from daisychain.core.results import FolderReport, told_results
from unit.core.chains import CARD, LEADER, RUN, Bench, node_id, of, status, told

DONE = replace(CARD, state=JobState.FINISHED)
LOW, HIGH = HeldResult(RUN, "1" * 64), HeldResult(RUN, "2" * 64)


def finisher(*results: HeldResult) -> NodeStatus:
    """The status of a coordinator that has trained the job to its end."""
    return replace(status(LEADER, (1, 2), leading=True), jobs=(DONE,), results=results)


def beside(*results: HeldResult) -> FolderReport:
    return FolderReport(results)


def linked(report: FolderReport = FolderReport(), card: bool = True) -> Bench:  # noqa: B008 - frozen
    bench = Bench()
    bench.do(JobsScanned((CARD,) if card else (), report))
    bench.link(2)
    return bench


def fetches(effects: list[Effect]) -> list[tuple[str, list[str]]]:
    return [
        (e.digest, [s.name for s in e.sources])
        for e in effects
        if isinstance(e, Fetch) and e.part is Part.RESULT
    ]


def test_a_node_that_did_not_train_fetches_the_result() -> None:
    bench = linked()
    assert fetches(bench.beat(2, finisher())) == [], "nobody has it yet"
    assert fetches(bench.beat(2, finisher(HIGH))) == [(HIGH.digest, ["n2"])]
    assert fetches(bench.do(Fetched(RUN, Part.RESULT))) == []
    effects = bench.do(JobsScanned((DONE,), beside(HIGH)))
    assert fetches(effects) == []
    assert told(effects)[-1].results == (HIGH,), "and has it for others from now on"


def test_of_two_results_of_one_run_the_least_digest_is_the_chains() -> None:
    assert fetches(linked(beside(HIGH)).beat(2, finisher(LOW))) == [(LOW.digest, ["n2"])]
    assert fetches(linked(beside(LOW)).beat(2, finisher(HIGH))) == []


def test_a_lesser_digest_that_turns_up_takes_the_place_of_what_is_under_way() -> None:
    bench = linked()
    bench.beat(2, finisher(HIGH))
    effects = bench.beat(2, finisher(LOW))
    assert of(DropFetch, effects) == [DropFetch(RUN, Part.RESULT)]
    assert fetches(effects) == [(LOW.digest, ["n2"])]


def test_a_lesser_digest_is_fetched_at_once_after_another_one_arrived() -> None:
    bench = linked()
    bench.beat(2, finisher(HIGH))
    bench.do(Fetched(RUN, Part.RESULT))
    bench.do(JobsScanned((DONE,), beside(HIGH)))
    assert fetches(bench.beat(2, finisher(LOW))) == [(LOW.digest, ["n2"])]


def test_a_failed_fetch_of_a_result_is_tried_again() -> None:
    bench = linked()
    bench.beat(2, finisher(LOW))
    bench.do(FetchFailed(RUN, Part.RESULT, "n2: it did not answer"))
    assert fetches(bench.keep(2, finisher(LOW), 30.0))[:1] == [(LOW.digest, ["n2"])]


def test_no_result_comes_where_a_persons_files_stand_or_no_folder_is() -> None:
    occupied = FolderReport(occupied=frozenset({CARD.digest}))
    assert fetches(linked(occupied).beat(2, finisher(LOW))) == []
    assert fetches(linked(card=False).beat(2, finisher(LOW))) == []


def test_an_older_run_s_result_does_not_come_back_over_a_newer_one() -> None:
    again = DONE.again(RunId("aaaa-2"), 99.0)
    newer = replace(again, state=JobState.FINISHED)
    bench = Bench()
    bench.do(JobsScanned((newer,), beside(HeldResult(newer.run_id, "9" * 64))))
    bench.link(2)
    assert fetches(bench.beat(2, replace(finisher(LOW), jobs=(DONE, newer)))) == []


def test_nothing_is_copied_between_nodes_that_share_the_folder() -> None:
    shared = FolderReport(sharers=frozenset({node_id(2)}))
    assert fetches(linked(shared).beat(2, finisher(LOW))) == []


def test_nothing_is_fetched_before_others_could_show_that_they_share_the_folder() -> None:
    unsettled = FolderReport(settled=False)
    bench = linked(unsettled)
    assert fetches(bench.beat(2, finisher(LOW))) == []
    assert fetches(bench.do(JobsScanned((CARD,), FolderReport()))) == [(LOW.digest, ["n2"])]


def test_of_those_that_share_a_folder_the_least_node_alone_writes() -> None:
    writer = FolderReport(sharers=frozenset({node_id(7)}))
    assert fetches(linked(writer).beat(2, finisher(LOW))) == [(LOW.digest, ["n2"])]
    other = FolderReport(sharers=frozenset({node_id(0)}))
    bench = linked(other, card=False)
    assert of(Fetch, bench.beat(2, replace(finisher(LOW), jobs=(CARD,), holds=(RUN,)))) == []


def test_what_is_told_of_results_is_bounded_and_the_newest() -> None:
    cards = [
        replace(DONE, run_id=RunId(f"{n:04x}-1"), submitted_at=float(n)) for n in range(2 * ENDED_TOLD_MAX)
    ]
    held = told_results([HeldResult(card.run_id, "a" * 64) for card in cards], cards)
    assert [result.run_id for result in held] == [c.run_id for c in reversed(cards)][:ENDED_TOLD_MAX]
