"""Many worlds in one life of three trainers: exact to the sample, and nothing left behind."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file

from support.hand_world import HandTrainer, HandWorld, hand_world
from support.job_folders import counting_job

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(400)]

WORLDS = 45
SETTLED = 15
"""After so many worlds what is allocated once and kept has been."""


def footprint(trainer: HandTrainer) -> tuple[int, int]:
    process = psutil.Process(trainer.process.pid)
    return process.num_fds(), process.num_threads()


def in_one_world(world: HandWorld, trainers: Sequence[HandTrainer]) -> list[tuple[int, int]]:
    """Return each trainer's descriptors and threads, all of them being in one world that trains."""
    generation = world.form(trainers)
    for trainer in trainers:
        world.progress(trainer, generation)
    return [footprint(trainer) for trainer in trainers]


def test_many_worlds_lose_no_sample_and_leak_nothing(tmp_path: Path) -> None:
    """Each plan breaks the world before it wherever its step is, commits that only some saw included."""
    epochs = 450
    job = counting_job(tmp_path / "counting", epochs)
    with hand_world(job, tmp_path / "state") as world:
        trainers = world.start(3)
        orders = [trainers, trainers[:2], trainers, trainers[1:], [trainers[2], trainers[0]]]
        step = 0
        before: list[tuple[int, int]] = []
        for number, members in enumerate(itertools.islice(itertools.cycle(orders), WORLDS)):
            if number == SETTLED:
                before = in_one_world(world, trainers)
            generation = world.form(members)
            world.progress(members[0], generation)
            step = world.progress_of(members[0]).step
        assert step < 4 * epochs, "the job ended too early for the storm"
        after = in_one_world(world, trainers)
        print(f"descriptors and threads before {before}, after {WORLDS - SETTLED} more worlds {after}")
        for old, new in zip(before, after, strict=True):
            assert new[0] <= old[0] + 2
            assert new[1] <= old[1] + 1
        world.finish(trainers, timeout_s=200)
        world.shut_down(trainers)
        for trainer in trainers:
            assert [line["step"] for line in trainer.lines()] == list(range(1, 4 * epochs + 1))
    counts = load_file(job / "result" / "model.safetensors")["counts"]
    assert counts.tolist() == [float(epochs)] * 64
