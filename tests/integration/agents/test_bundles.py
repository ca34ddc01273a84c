"""One folder everywhere: a job dropped on one node trains on all, without a shared volume."""

from __future__ import annotations

from pathlib import Path

import pytest

from daisychain.core.jobs import JobState
from support.agent_node import Node
from support.agents import chain
from support.progress import trains_together
from support.waiting import until

pytestmark = pytest.mark.integration

FETCH_S, END_S = 30.0, 90.0
EPOCHS = 30


def files(folder: Path) -> dict[str, bytes]:
    """Return what a job's folder holds, its result left out."""
    found = (path for path in folder.rglob("*") if path.is_file())
    named = ((path.relative_to(folder).as_posix(), path.read_bytes()) for path in found)
    return {name: data for name, data in named if not name.startswith(("result/", "__pycache__/"))}


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
        assert sorted(path.name for path in bob.jobs.iterdir()) == ["counting"]
        assert not list((bob.state / "incoming").iterdir())
        assert bob.summary("counting")["run_id"] == ada.summary("counting")["run_id"]
