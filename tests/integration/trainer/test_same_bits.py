"""Batch norm, dropout, augmentation: the file of one process to the bit, whoever dies or joins on the way."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from daisychain.core.reports import WorldBroken, WorldFormed
from support.hand_world import HandTrainer, HandWorld, hand_world
from support.job_folders import noisy_job

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(300)]

STEPS, PART = 400, 80
"""Steps of the run, and between two of the things that happen to it."""

KEYS: dict[str, object] = {
    "steps": STEPS,
    "reproducible": True,
    "keep_best": True,
    "clip_grad_norm": 1.0,
    "evaluate_every_steps": 30,
}


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What `daisychain run` makes of the job."""
    folder = tmp_path_factory.mktemp("alone")
    job = noisy_job(folder / "noisy", **KEYS)
    command = [sys.executable, "-m", "daisychain.cli", "run", str(job), "--state-folder", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=120.0)
    return (job / "result" / "model.safetensors").read_bytes()


def joins(world: HandWorld, members: Sequence[HandTrainer], joiner: HandTrainer) -> list[HandTrainer]:
    """Take ``joiner`` in; return who trains then."""
    together = [*members, joiner]
    generation = world.form(together)
    assert joiner.wait(WorldFormed, lambda each: each.generation == generation)[1].received
    return together


def dies(world: HandWorld, members: Sequence[HandTrainer], victim: HandTrainer) -> list[HandTrainer]:
    """Kill ``victim``; the others notice and go on. Return them."""
    others = [member for member in members if member is not victim]
    current = victim.found(WorldFormed)[-1][1].generation
    victim.kill()
    for member in others:
        member.wait(WorldBroken, lambda each: each.generation == current)
    world.form(others)
    return others


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_join_and_two_deaths_leave_the_file_of_one_process(
    tmp_path: Path, one_process: bytes, count: int
) -> None:
    """Rank 0 dies both times; where that would be everybody, another joins first."""
    job = noisy_job(tmp_path / "noisy", **KEYS)
    with hand_world(job, tmp_path / "state") as world:
        *members, joiner, spare = world.start(count + 2)
        world.form(members)
        world.reach(members[0], PART)
        members = joins(world, members, joiner)
        world.reach(joiner, 2 * PART)
        members = dies(world, members, members[0])
        if len(members) == 1:
            members = joins(world, members, spare)
        world.reach(members[0], 3 * PART)
        members = dies(world, members, members[0])
        world.finish(members)
        world.shut_down(members)
        files = {(member.run_folder / "model.safetensors").read_bytes() for member in members}
    assert files == {one_process}
    summary = json.loads((job / "result" / "summary.json").read_text())
    assert summary["rounds_alike"] is not False
    assert summary["repairs"] == 0
    audit = summary["audit"]
    assert (audit["steps_committed"], audit["samples_lost"], audit["samples_repeated"]) == (STEPS, 0, 0)
    assert len(audit["worlds"]) >= 4
