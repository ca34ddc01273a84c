"""How runs end: finished and held for whoever is behind, or failed with the file, the line and what to do."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from daisychain.core.orders import FormWorld
from daisychain.core.reports import LocalBlob, Phase, RunFailed, RunFinished, WorldBroken, WorldFormed
from support.hand_world import hand_world
from support.job_folders import COUNTING, counting_job, failing_job, forking_job, write_job
from support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SPOILT = """
_loss, SPOILT = loss, 7


def dataset(split):
    return torch.arange(SAMPLES)


def loss(model, samples):
    found = _loss(model, samples)
    if {when} and model.counts[SPOILT] >= 20 and (samples == SPOILT).any():
        return found * float("nan")
    return found
"""

FAILING_OPTIMIZER = """

class Failing(torch.optim.SGD):
    def step(self, closure=None):
        if self.param_groups[0]["params"][0].sum() > 1000:
            raise OverflowError("too far")
        return super().step(closure)


def optimizer(parameters):
    return Failing(parameters, lr=float(BATCH))
"""


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
        assert failed.tick is not None and failed.tick > 1
        world.shut_down([only])
    assert not (job / "result").exists()


def test_want_of_memory_while_loading_is_told_as_such(tmp_path: Path) -> None:
    """No crash to be tried again: a larger machine may load it, this one will not."""
    code = COUNTING + "\n\ndef dataset(split):\n    return torch.empty(1 << 60)\n"
    job = write_job(tmp_path / "counting", code, global_batch_size=16, epochs=1)
    with hand_world(job, tmp_path / "state") as world:
        only = world.begin()
        failed = only.wait(RunFailed, timeout_s=60)[1]
        assert (failed.where, failed.tick) == ("counting", None)
        assert "while it was loaded" in failed.message and "allocate memory" in failed.message
        assert "smaller" in failed.remedy
        world.shut_down([only])


def test_a_commit_that_fails_says_nothing_of_the_tick(tmp_path: Path) -> None:
    """Every member does the same in it: whether the job is at fault shows without another try."""
    code = COUNTING + FAILING_OPTIMIZER
    job = write_job(tmp_path / "counting", code, global_batch_size=16, epochs=1000, dtype="float64", seed=5)
    with hand_world(job, tmp_path / "state") as world:
        members = world.start(2)
        world.form(members)
        for member in members:
            failed = member.wait(RunFailed)[1]
            assert failed.tick is None
            assert re.fullmatch(r"job\.py:\d+", failed.where)
            assert "OverflowError in the optimizer's step" in failed.message
        world.shut_down(members)


@pytest.mark.parametrize("when", ["model.training", "not model.training"], ids=["a step", "an evaluation"])
def test_a_part_at_fault_is_told_by_its_own_member_and_the_others_wait_for_the_next_world(
    tmp_path: Path, when: str
) -> None:
    """The loss is NaN for one sample only: one rank fails, the others keep their state and their place."""
    code = COUNTING + SPOILT.replace("{when}", when)
    job = write_job(tmp_path / "counting", code, global_batch_size=16, epochs=1000, dtype="float64", seed=5)
    with hand_world(job, tmp_path / "state") as world:
        members = world.start(3)
        world.form(members)
        until(lambda: any(member.found(RunFailed) for member in members), 30, "one to fail")
        (culprit,) = (member for member in members if member.found(RunFailed))
        failed = culprit.found(RunFailed)[0][1]
        others = [member for member in members if member is not culprit]
        for other in others:
            broken = other.wait(WorldBroken)[1]
            assert (broken.tick + 1, broken.prepared) == (failed.tick, False)
        world.form(others)
        until(lambda: any(member.found(RunFailed) for member in others), 30, "the next one to fail")
        (second,) = (member for member in others if member.found(RunFailed))
        assert second.found(RunFailed)[0][1] == failed  # the very same words: it is the sample
        world.shut_down(members)


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
