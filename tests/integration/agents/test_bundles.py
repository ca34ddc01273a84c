"""One folder everywhere: a job dropped on one node trains on all, without a shared volume."""

from __future__ import annotations

from pathlib import Path

import pytest

from daisychain.core.jobs import JobState
from daisychain.runtime.agent_status import AgentStatus
from support.agent_node import Node
from support.agents import chain
from support.progress import trains_together
from support.waiting import until

pytestmark = pytest.mark.integration

FETCH_S, END_S, RESULT_S = 30.0, 90.0, 20.0
EPOCHS = 30


def files(folder: Path) -> dict[str, bytes]:
    """Return what a job's folder holds, its result left out; none while a result is just being replaced.

    What a result replaces stands beside it under a hidden name for a moment, and counts here: a test that
    compares after a result came must wait, and would see one that stays.
    """
    try:
        found = (path for path in folder.rglob("*") if path.is_file())
        named = [(path.relative_to(folder).as_posix(), path.read_bytes()) for path in found]
    except FileNotFoundError:
        return {}
    return {name: data for name, data in named if not name.startswith(("result/", "__pycache__/"))}


def result(node: Node) -> dict[str, bytes]:
    """Return the files of the counting job's result on a node; none while one is just being replaced."""
    folder = node.jobs / "counting" / "result"
    try:
        return {path.name: path.read_bytes() for path in folder.iterdir()}
    except FileNotFoundError:
        return {}


def trains(node: Node) -> bool:
    return node.knows(lambda status: status.view.trainer.step > 0)


def shares(status: AgentStatus) -> bool:
    return any("is shared with node" in problem for problem in status.problems)


def finished(node: Node) -> bool:
    return node.state_of("counting") is JobState.FINISHED


def test_a_job_dropped_on_one_node_trains_on_both(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        dropped = agents.write_job("ada", epochs=EPOCHS)
        (dropped / "sub" / "deeper").mkdir(parents=True)
        (dropped / "sub" / "deeper" / "table.bin").write_bytes(bytes(range(256)) * 10_000)
        (dropped / "empty").touch()
        ada = agents.start("ada", "--min-nodes", "2", wait=False)
        bob = agents.start("bob", "--min-nodes", "2", wait=False)
        for node in (ada, bob):
            node.await_start()
        until((bob.jobs / "counting" / "job.yaml").exists, FETCH_S, "bob has no folder")
        assert files(bob.jobs / "counting") == files(dropped)
        trains_together([ada, bob])
        agents.hurry_up()
        until(lambda: finished(ada) and finished(bob), END_S, "the run goes on")
        assert sorted(path.name for path in bob.jobs.glob("[!.]*")) == ["counting"]
        until(lambda: result(ada) == result(bob) != {}, RESULT_S, "their results differ")
        until(lambda: not list((bob.state / "incoming").iterdir()), RESULT_S, "something is left of a fetch")
        until(lambda: files(bob.jobs / "counting") == files(dropped), RESULT_S, "a result is left in the job")


@pytest.mark.long
def test_the_result_comes_to_nodes_that_did_not_train_also_to_one_that_was_down(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        job = agents.write_job("ada", epochs=EPOCHS)
        with (job / "job.yaml").open("a") as file:
            file.write("max_nodes: 1\n")
        ada = agents.start("ada")
        bob = agents.start("bob")
        until((bob.jobs / "counting" / "job.yaml").exists, FETCH_S, "bob has no folder")
        until(lambda: trains(ada) or trains(bob), END_S, "nobody trains")
        trainer, other = (ada, bob) if trains(ada) else (bob, ada)
        other.stop()
        agents.hurry_up()
        until(lambda: finished(trainer), END_S, "the run goes on")
        whole = result(trainer)
        assert {"model.safetensors", "summary.json", "metrics.jsonl"} <= whole.keys()
        back = agents.start(other.name)
        until(lambda: result(back) == whole, RESULT_S, "the result did not come to the node that is back")
        late = agents.start("eve", wait=False)  # has no folder of the job, and gets nothing unasked
        late.await_start()
        until(lambda: finished(back), RESULT_S, "the node that is back would run it again")
        assert result(trainer) == whole
        owner = (back.jobs / "counting" / "result" / "summary.json").stat()
        assert (owner.st_uid, owner.st_gid) == (back.jobs.stat().st_uid, back.jobs.stat().st_gid)


@pytest.mark.long
def test_agents_on_one_folder_copy_nothing_and_say_so(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        job = agents.write_job("ada", epochs=EPOCHS)
        ada = agents.start("ada", "--min-nodes", "2", wait=False)
        bob = agents.start("bob", "--min-nodes", "2", "--jobs-folder", str(ada.jobs), wait=False)
        for node in (ada, bob):
            node.await_start()
        for node in (ada, bob):
            until(lambda node=node: node.knows(shares), FETCH_S, f"{node.name} does not notice")  # type: ignore[misc]
        trains_together([ada, bob])
        agents.hurry_up()
        until(lambda: finished(ada) and finished(bob), END_S, "the run goes on")
        whole = result(ada)
        assert {"model.safetensors", "summary.json", "metrics.jsonl"} <= whole.keys()
        assert sorted(path.name for path in ada.jobs.glob("[!.]*")) == ["counting"]
        for node in (ada, bob):
            assert "fetched" not in node.log.read_text(), "something was copied"
            assert not (node.state / "incoming").exists()
        assert not list(job.glob(".result-*"))
        assert result(ada) == whole
