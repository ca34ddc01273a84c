"""All trainers are killed, or end in order, and are started again: the run goes on from their disks.

Each node may have another checkpoint; whoever is the most advanced passes its state to the others.
"""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from daisychain.core.reports import DiskTrouble, Progress, RunFinished, TrainerReady, WorldFormed
from support.hand_world import HandTrainer, hand_world
from support.job_folders import counting_job, whole_job
from support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(300)]

OFTEN_S = 0.2


def checkpoints(trainer: HandTrainer) -> list[Path]:
    return sorted((trainer.run_folder / "checkpoints").glob("*.state"))


def saved(trainer: HandTrainer, count: int = 1) -> None:
    """Wait until ``trainer`` has written so many checkpoints beyond those that are there now."""
    before = {path.name for path in checkpoints(trainer)}
    seen: set[str] = set()

    def more() -> bool:
        assert not trainer.found(RunFinished), f"trainer {trainer.index}: the run was over too early"
        seen.update(path.name for path in checkpoints(trainer))
        return len(seen - before) >= count

    until(more, 20, f"trainer {trainer.index} to write checkpoints")


def ready(trainer: HandTrainer) -> TrainerReady:
    return trainer.wait(TrainerReady)[1]


def kill_all(members: list[HandTrainer]) -> None:
    for member in members:
        member.kill()
    for member in members:
        member.process.wait(10)


def bytes_of_a_run_in_peace(job: Path, state: Path) -> bytes:
    with hand_world(job, state) as world:
        (alone,) = world.start(1)
        world.form([alone])
        world.finish([alone])
        world.shut_down([alone])
    return (job / "result" / "model.safetensors").read_bytes()


def test_killed_everywhere_twice_a_reproducible_run_ends_with_the_bytes_of_one_in_peace(
    tmp_path: Path,
) -> None:
    """Batch norm, dropout, Adam, a schedule, the best model, the patience: all of it comes back."""
    keys = {"early_stopping": 1000}
    wanted = bytes_of_a_run_in_peace(whole_job(tmp_path / "peace" / "whole", 60, **keys), tmp_path / "one")
    # 300 steps of four granules a node: 6 s at the least, however fast the machine is.
    job = whole_job(tmp_path / "whole", 60, pace_s=0.005, **keys)
    with hand_world(job, tmp_path / "state", OFTEN_S) as world:
        members = world.start(2)
        for _ in range(2):
            world.form(members)
            world.progress(members[0], members[0].found(WorldFormed)[-1][1].generation)
            for member in members:
                saved(member)
            assert not (job / "result").exists(), "the run ended before its trainers could be killed"
            kill_all(members)
            at_death = [len(member.lines()) for member in members]
            members = world.again(members)
            for member, lines in zip(members, at_death, strict=True):
                assert 0 < ready(member).tick <= lines
                assert len(member.lines()) == ready(member).tick
        greatest = max(ready(member).step for member in members)
        generation = world.form(members)
        assert {member.found(WorldFormed)[-1][1].step for member in members} == {greatest}
        assert all(each.found(WorldFormed)[-1][1].generation == generation for each in members)
        world.finish(members)
        for member in members:
            steps = [line["step"] for line in member.lines() if "samples" in line]
            assert steps == list(range(1, 301))
            assert checkpoints(member) == [], "a finished run keeps none"
        world.shut_down(members)
    assert (job / "result" / "model.safetensors").read_bytes() == wanted
    audit = json.loads((job / "result" / "summary.json").read_text())["audit"]
    assert (audit["samples_lost"], audit["samples_repeated"], audit["steps_committed"]) == (0, 0, 300)


def test_an_orderly_end_of_all_costs_nothing_at_all(tmp_path: Path) -> None:
    """No checkpoint was due yet: the last one is written when the agents ask for the end."""
    with hand_world(counting_job(tmp_path / "counting", 1_000_000), tmp_path / "state") as world:
        members = world.start(2)
        world.form(members)
        world.reach(members[0], 50)
        world.shut_down(members)
        ends = [len(member.lines()) for member in members]
        assert min(ends) >= 50
        members = world.again(members)
        assert [ready(member).tick for member in members] == ends
        world.progress(members[0], world.form(members))
        steps = [line["step"] for line in members[0].lines()]
        assert steps == list(range(1, len(steps) + 1))


def test_a_torn_checkpoint_is_named_and_the_one_before_it_taken(tmp_path: Path) -> None:
    job = counting_job(tmp_path / "counting", 4000)
    with hand_world(job, tmp_path / "state", OFTEN_S) as world:
        (only,) = world.start(1)
        world.form([only])
        saved(only, 3)
        kill_all([only])
        *_, older, newest = checkpoints(only)
        os.truncate(newest, newest.stat().st_size // 2)
        (only,) = world.again([only])
        assert ready(only).tick == int(older.stem)
        assert f"checkpoint {newest.name} was passed over: it is torn" in only.log()
        world.form([only])
        world.finish([only])
        world.shut_down([only])
    summary = json.loads((job / "result" / "summary.json").read_text())
    assert newest.name in summary["notes"][-1]
    assert (summary["audit"]["samples_lost"], summary["audit"]["samples_repeated"]) == (0, 0)
    counts = load_file(job / "result" / "model.safetensors")["counts"]
    assert torch.equal(counts, torch.full((64,), 4000.0, dtype=torch.float64))


def test_a_full_disk_stops_nothing_is_told_and_is_over_when_there_is_room(tmp_path: Path) -> None:
    """No file of one trainer may grow: neither its record nor a checkpoint can be written."""
    job = counting_job(tmp_path / "counting", 1500)
    with hand_world(job, tmp_path / "state", OFTEN_S) as world:
        full, well = members = world.start(2)
        world.form(members)
        saved(full)
        resource.prlimit(full.process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        told = full.wait(DiskTrouble, lambda each: "checkpoints" in each.text and "metrics" in each.text)[1]
        assert "Make room on its disk" in told.text
        before = world.progress_of(full).step
        world.wait(lambda: full.found(Progress)[-1][1].step > before + 300, 30, "training to go on", full)
        assert not well.found(DiskTrouble)
        resource.prlimit(full.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        full.wait(DiskTrouble, lambda each: not each.text)
        saved(full)
        world.finish(members, timeout_s=120)
        assert [line["step"] for line in full.lines()] == list(range(1, 6001))
        world.shut_down(members)
        assert full.log().count("are not written") <= 2, "once a spell, not once a try"


def test_a_node_without_room_to_the_end_trains_to_the_end_and_says_that_it_wrote_nothing(
    tmp_path: Path,
) -> None:
    """The other one's result is whole."""
    job = counting_job(tmp_path / "counting", 200)
    with hand_world(job, tmp_path / "state", OFTEN_S) as world:
        full, well = members = world.start(2)
        resource.prlimit(full.process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        world.form(members)
        world.finish(members)
        told = full.wait(RunFinished)[1]
        assert "cannot be written" in told.unwritten
        assert (told.step, well.wait(RunFinished)[1].unwritten) == (800, "")
        world.shut_down(members)
    audit = json.loads((job / "result" / "summary.json").read_text())["audit"]
    assert (audit["samples_lost"], audit["samples_repeated"]) == (0, 0)
    counts = load_file(job / "result" / "model.safetensors")["counts"]
    assert torch.equal(counts, torch.full((64,), 200.0, dtype=torch.float64))
