"""Who a node is after its folder was copied, damaged or asked to take a new id."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from daisychain.core.ids import RunId, Term
from daisychain.core.jobs import JobCard, JobState
from daisychain.host.state_folder import StateFolder
from daisychain.net.identity.cluster_key import ClusterKey
from daisychain.runtime.remember import Remembered, remember, take_new_id


def remembered(folder: Path) -> Remembered:
    key = folder / "cluster.key"
    ClusterKey.load_or_create(key)
    return remember(StateFolder(folder), key)


def test_a_new_id_begins_with_a_record_of_its_own_and_is_kept(tmp_path: Path) -> None:
    before = remembered(tmp_path)
    before.record.save_term(Term(7, before.identity.node_id))
    identity, _ = take_new_id(before.state)
    after = remembered(tmp_path)
    assert after.identity.node_id == identity.node_id != before.identity.node_id
    assert after.record.term == Term(0, identity.node_id)
    assert after.problems == ()


def test_an_identity_without_its_own_record_is_given_up(tmp_path: Path) -> None:
    before = remembered(tmp_path)
    (tmp_path / "record.json").unlink()
    after = remembered(tmp_path)
    assert after.identity.node_id != before.identity.node_id
    assert "took a new id" in after.problems[0]


def test_what_an_ended_run_left_is_removed_at_the_next_start(tmp_path: Path) -> None:
    """The agent died before it could tidy up; a run that goes on keeps its checkpoints."""
    before = remembered(tmp_path)
    card = JobCard(RunId("a-1"), "digits", "a", 1.0)
    before.ledger.record(replace(card, state=JobState.CANCELLED))
    before.ledger.record(replace(card, run_id=RunId("b-1")))
    for name in ("a-1", "b-1"):
        (before.state.runs.folder(name) / "checkpoints").mkdir()
    remembered(tmp_path)
    assert [path.parent.name for path in tmp_path.glob("runs/*/checkpoints")] == ["b-1"]
