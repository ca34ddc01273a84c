"""What status and jobs print: every fact in words, nothing of a peer's taken for markup."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from daisychain.cli.render import as_records, duration, jobs_table, show_jobs, show_status
from daisychain.core.ids import Address, ClusterId, Generation, NodeId, RunId, Term
from daisychain.core.jobs import JobCard, JobState
from daisychain.core.node import NodeInfo, TrainerState, TrainerStatus
from daisychain.core.queue_view import QueuedJob
from daisychain.core.reports import Progress
from daisychain.core.shares import Capacity
from daisychain.core.view import ChainView, PeerView, StrangerView
from daisychain.core.world import Member, WorldPlan
from daisychain.runtime.agent_status import AgentStatus, DiscoveryView, FetchView

ME, PEER = NodeId("a" * 32), NodeId("b" * 32)
TERM = Term(4, PEER)
GENERATION = Generation(TERM, 2, 99)


def info(node_id: NodeId, name: str, port: int) -> NodeInfo:
    return NodeInfo(
        node_id, name, 1, "m", Address("10.0.0.7", port), "0.1.0", "2.13.0", "linux", 4, 1 << 33, "cpu"
    )


def printed(status: AgentStatus) -> str:
    stream = io.StringIO()
    show_status(Console(file=stream, width=160, soft_wrap=True), status)
    return stream.getvalue()


def status() -> AgentStatus:
    trainer = TrainerStatus(TrainerState.TRAINING, RunId("r-1"), GENERATION, 13, 12, Capacity(0.0, 1.0))
    members = (Member(PEER, "bob", "10.0.0.7", Capacity(0, 1)), Member(ME, "ada", "10.0.0.8", Capacity(0, 1)))
    card = JobCard(RunId("r-1"), "digits", "d", 0.0, JobState.RUNNING, "", 1, 12, 480)
    view = ChainView(
        cluster_id=ClusterId("c" * 16),
        me=info(ME, "ada", 1),
        term=TERM,
        coordinator=PEER,
        peers=(PeerView(info(PEER, "bob [bold]x[/bold]", 2), "suspect", 1.0, trainer, "its copy differs"),),
        strangers=(StrangerView(Address("10.0.0.9", 3), "mdns", "a node of another cluster"),),
        jobs=(card,),
        trainer=trainer,
        world=WorldPlan(GENERATION, RunId("r-1"), members, "bob joined"),
        progress=Progress(GENERATION, 12, 13, 480, 1, 0.25, 128, 0.01, (100, 28), 5000.0),
        standby="",
        waiting="2 s of quiet in discovery",
        caution="these machines round differently",
        queue=(QueuedJob(card, "digits", 1, ("ada", "bob"), 125.0, ""),),
    )
    source = DiscoveryView("mdns", "ok", "announced on eth0")
    return AgentStatus(view, (source,), "eth0", "wired", 1, 2, 3.0, 0, 0, ("the ledger was damaged",))


def test_status_tells_every_fact_in_words() -> None:
    text = printed(status())
    for fact in (
        "cluster cccccccccccccccc",
        "over eth0: wired",
        "coordinator: bob [bold]x[/bold]   term 4",
        "suspect",
        "its copy differs",
        "training, step 12",
        "10.0.0.9:3 (a node of another cluster)",
        "world 4.2: bob, ada (bob joined)",
        "these machines round differently",
        "step 12 of 480, loss 0.25, 5000 samples/s, shares 100/28",
        "waiting for 2 s of quiet in discovery",
        "found by mdns: ok (announced on eth0)",
        "problem: the ledger was damaged",
        "12/480",
        "2 min",
        "ada, bob",
    ):
        assert fact in text, fact
    assert "\x1b" not in text


def test_a_node_that_failed_at_a_run_is_named_with_the_reason_and_the_remedy() -> None:
    told = status()
    failed = TrainerStatus(
        TrainerState.FAILED, RunId("r-1"), reason="net.py:3: no such layer. Correct the line"
    )
    view = replace(told.view, trainer=failed, standby="")
    text = printed(replace(told, view=view))
    assert "ada failed at run r-1: net.py:3: no such layer. Correct the line" in text


def test_jobs_name_who_does_not_train_along_with_the_reason() -> None:
    told = status()
    why = "bob [bold]x[/bold]: net.py:3: loss() raised KeyError: 7. Correct it"
    view = replace(told.view, peers=(replace(told.view.peers[0], standby=why),))
    stream = io.StringIO()
    show_jobs(Console(file=stream, width=200), replace(told, view=view), Path("jobs"))
    assert (
        "bob [bold]x[/bold] stands by: net.py:3: loss() raised KeyError: 7. Correct it" in stream.getvalue()
    )
    ended = replace(view, jobs=tuple(replace(card, state=JobState.FINISHED) for card in view.jobs))
    stream = io.StringIO()
    show_jobs(Console(file=stream, width=200), replace(told, view=ended), Path("jobs"))
    assert "stands by" not in stream.getvalue()


def test_jobs_show_why_a_run_failed() -> None:
    card = JobCard(RunId("r-1"), "digits", "d", 0.0, JobState.FAILED, "data.csv:[3] no column 'y'")
    stream = io.StringIO()
    Console(file=stream, width=160).print(jobs_table([QueuedJob(card, "digits", 0, (), None, "")]))
    assert "failed" in stream.getvalue()
    assert "data.csv:[3] no column 'y'" in stream.getvalue()


def test_a_node_that_trains_and_cannot_write_is_named_with_the_remedy() -> None:
    told = status()
    trouble = "checkpoints are not written: no room. Make room on its disk."
    trainer = replace(told.view.trainer, trouble=trouble)
    text = printed(replace(told, view=replace(told.view, trainer=trainer)))
    assert f"ada trains, but {trouble}" in text


def test_two_jobs_of_one_name_are_both_shown_and_the_user_is_told() -> None:
    cards = [JobCard(RunId(f"{digest}-1"), "digits", digest, 0.0) for digest in ("a" * 64, "b" * 64)]
    labels = [f"digits@{card.digest[:6]}" for card in cards]
    queue = tuple(
        QueuedJob(card, label, 2, (), None, "2nd: waits for other")
        for card, label in zip(cards, labels, strict=True)
    )
    stream = io.StringIO()
    told = replace(status(), view=replace(status().view, jobs=tuple(cards), queue=queue))
    show_jobs(Console(file=stream, width=200), told, Path("jobs"))
    text = stream.getvalue()
    assert "2 jobs are called digits: digits@aaaaaa, digits@bbbbbb" in text
    assert text.count("2nd: waits for other") == 2


def test_programs_get_the_card_and_the_place_in_one_object() -> None:
    (record,) = as_records(status().view.queue)
    assert (record["name"], record["state"], record["place"]) == ("digits", "running", 1)
    assert (list(record["workers"]), record["eta_s"], record["waits"]) == (["ada", "bob"], 125.0, "")


def test_a_time_to_come_is_rounded_and_an_unknown_one_is_a_dash() -> None:
    given = (None, 0.2, 29.0, 90.0, 3540.0, 7500.0)
    assert [duration(seconds) for seconds in given] == ["-", "1 s", "29 s", "2 min", "59 min", "2 h 5 min"]


def test_what_is_fetched_is_told_with_its_progress_and_by_whom_it_comes() -> None:
    fetches = (
        FetchView("digits", "job", 34_000_000, 200_000_000, ("ada", "bob")),
        FetchView("small", "result", 4_200, 61_000, ("ada",)),
        FetchView("new [b]", "job", 0, 0, ()),
    )
    told = replace(status(), fetches=fetches)
    lines = (
        "fetching jobs/digits: 34 of 200 MB from ada, bob",
        "fetching jobs/small/result: 0.0042 of 0.061 MB from ada",
        "fetching jobs/new [b]: asking what it holds from nobody just now",
    )
    stream = io.StringIO()
    show_jobs(Console(file=stream, width=200), told, Path("jobs"))
    for line in lines:
        assert line in printed(told)
        assert line in stream.getvalue()
