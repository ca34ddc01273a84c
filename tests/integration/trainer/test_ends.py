"""How runs end: finished and held for whoever is behind, or failed with the file, the line and what to do."""

from __future__ import annotations

import shutil
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from daisychain.core.orders import FormWorld
from daisychain.core.reports import LocalBlob, Phase, RunFailed, RunFinished, WorldBroken, WorldFormed
from support.hand_world import hand_world
from support.job_folders import counting_job, failing_job, forking_job
from support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def test_a_finished_member_holds_the_state_for_one_that_is_behind(tmp_path: Path) -> None:
    """Two finish; a third joins afterwards, receives the final state, and publishes nothing a second time."""
    job = counting_job(tmp_path / "counting", 20)
    with hand_world(job, tmp_path / "state") as world:
        a, b, late = world.start(3)
        world.form([a, b])
        world.finish([a, b])
        assert a.ping(1).phase is Phase.HOLDING
        summary = job / "result" / "summary.json"
        published = summary.stat().st_mtime_ns
        generation = world.form([a, b, late])
        received = late.wait(WorldFormed, lambda each: each.generation == generation)[1]
        assert (received.received, received.step) == (True, 80)
        world.finish([late])
        assert summary.stat().st_mtime_ns == published
        assert len(a.found(RunFinished)) == 1
        assert [line["step"] for line in late.lines()] == list(range(1, 81))
        world.shut_down([a, b, late])
        models = [load_file(each.run_folder / "model.safetensors")["counts"] for each in (a, b, late)]
    assert all(torch.equal(model, torch.full((64,), 20.0, dtype=torch.float64)) for model in models)
    names = sorted(path.name for path in (job / "result").iterdir())
    assert names == ["metrics.jsonl", "model.safetensors", "summary.json", "train.log"]


def test_a_result_that_cannot_be_written_is_told_and_the_model_kept(tmp_path: Path) -> None:
    """The user removes the job's folder in mid-run: there is no place for a result any more."""
    job = counting_job(tmp_path / "counting", 20)
    with hand_world(job, tmp_path / "state") as world:
        (alone,) = world.start(1)
        shutil.rmtree(job)
        world.form([alone])
        told = alone.wait(RunFinished)
        assert "cannot be written" in told[1].unwritten
        assert str(alone.run_folder) in told[1].unwritten
        world.shut_down([alone])
        model = load_file(alone.run_folder / "model.safetensors")["counts"]
    assert torch.equal(model, torch.full((64,), 20.0, dtype=torch.float64))


def test_a_process_that_the_job_forked_does_not_hide_a_death(tmp_path: Path) -> None:
    """The child lives on, and yet the survivors and the agent see at once that its parent is dead."""
    with hand_world(forking_job(tmp_path / "counting"), tmp_path / "state") as world:
        a, b, c = members = world.start(3)
        world.form(members)
        notes = [member.run_folder / "child" for member in members]
        until(lambda: all(note.exists() and note.read_text() for note in notes), 30, "each to fork")
        children = [psutil.Process(int(note.read_text())) for note in notes]
        try:
            b.kill()
            for survivor in (a, c):
                survivor.wait(WorldBroken, timeout_s=5)
            until(lambda: b.gone, 5, "its agent to see the end of the socket")
            assert children[1].is_running()
        finally:
            for member in members:
                (member.run_folder / "end").touch()
    until(lambda: not any(map(_runs, children)), 5, "the children to end")


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        ("inputs = inputs / 0 * 0", "NaN"),
        ('raise KeyError("no such column")', "no such column"),
    ],
    ids=["a NaN loss", "an error in the user's file"],
)
def test_a_job_that_cannot_go_on_fails_with_the_file_the_line_and_what_to_do(
    tmp_path: Path, failure: str, message: str
) -> None:
    job = failing_job(tmp_path / "failing", failure)
    lines = (job / "job.py").read_text().splitlines()
    where = f"job.py:{lines.index('        ' + failure) + 1}" if "raise" in failure else "job.py"
    with hand_world(job, tmp_path / "state") as world:
        (only,) = world.start(1)
        world.form([only])
        failed = only.wait(RunFailed)[1]
        assert where in failed.where
        assert message in failed.message
        assert failed.remedy
        world.shut_down([only])
    assert not (job / "result").exists()


def test_a_broken_job_fails_before_any_world(tmp_path: Path) -> None:
    job = counting_job(tmp_path / "counting", 20)
    (job / "job.yaml").write_text("kind: python\nfile: job.py\nepochs: many\nglobal_batch_size: 4\n")
    with hand_world(job, tmp_path / "state") as world:
        only = world.begin()
        failed = only.wait(RunFailed, timeout_s=60)[1]
        assert "epochs" in failed.where
        assert failed.message
        world.shut_down([only])


def test_a_plan_of_another_run_or_without_this_node_is_reported_broken(tmp_path: Path) -> None:
    job = counting_job(tmp_path / "counting", 20)
    with hand_world(job, tmp_path / "state") as world:
        (only,) = world.start(1)
        stranger = world.begin()
        foreign = world.plan([stranger])
        only.tell(FormWorld(foreign, 5.0))
        broken = only.wait(WorldBroken, lambda each: each.generation == foreign.generation)[1]
        assert "no place for this trainer" in broken.reason
        assert not only.found(LocalBlob)
        world.form([only])
        world.finish([only])
        world.shut_down([only])
