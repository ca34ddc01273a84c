"""Three real trainers in a hand-given world: the same training as one process, whatever happens to them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from daisychain.core.reports import TrainerReady, WorldBroken, WorldFormed
from support.hand_world import HandTrainer, HandWorld, hand_world
from support.job_folders import counting_job, regression_job
from support.oracle import train_plainly

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def death_and_join(world: HandWorld, first: int, second: int) -> list[HandTrainer]:
    """Train with three; kill rank 1 after step ``first``; take a joiner in after ``second``; finish."""
    a, b, c, joiner = world.start(4)
    world.form([a, b, c])
    world.reach(a, first)
    b.kill()
    for survivor in (a, c):
        survivor.wait(WorldBroken)
    world.form([a, c])
    world.reach(a, second)
    generation = world.form([a, c, joiner])
    received = joiner.wait(WorldFormed, lambda formed: formed.generation == generation)[1]
    assert received.received
    assert received.step >= second
    world.finish([a, c, joiner])
    world.shut_down([a, c, joiner])
    return [a, c, joiner]


def summary(job: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((job / "result" / "summary.json").read_text())
    return found


def assert_audit(members: Sequence[HandTrainer], job: Path, worlds: int) -> None:
    """Every member's record has each step once; the published audit says so too."""
    for member in members:
        steps = [line["step"] for line in member.lines() if "loss" in line]
        assert steps == list(range(1, len(steps) + 1))
    audit = summary(job)["audit"]
    assert (audit["samples_lost"], audit["samples_repeated"]) == (0, 0)
    assert audit["steps_committed"] == audit["steps_expected"]
    assert len(audit["worlds"]) == worlds


def test_a_counting_job_through_a_death_and_a_join_visits_each_sample_once_an_epoch(tmp_path: Path) -> None:
    epochs = 120
    job = counting_job(tmp_path / "counting", epochs)
    with hand_world(job, tmp_path / "state") as world:
        members = death_and_join(world, 100, 250)
    counts = load_file(job / "result" / "model.safetensors")["counts"]
    assert counts.tolist() == [float(epochs)] * 64
    assert_audit(members, job, worlds=3)


@pytest.mark.parametrize(
    "features",
    [frozenset(), frozenset({"weighted", "unused", "tied", "clipping", "schedule"})],
    ids=["plain", "weighted, unused, tied, clipped, scheduled"],
)
def test_a_float64_job_through_a_death_and_a_join_equals_a_plain_loop(
    tmp_path: Path, features: frozenset[str]
) -> None:
    epochs = 60
    job = regression_job(tmp_path / "regression", features, epochs=epochs, evaluate_every_epochs=10)
    with hand_world(job, tmp_path / "state") as world:
        members = death_and_join(world, 100, 220)
    expected = train_plainly(
        job / "job.py", seed=3, batch=32, epochs=epochs, clip=0.05 if "clipping" in features else None
    )
    found = load_file(job / "result" / "model.safetensors")
    differences = {
        name: float((found[name] - expected[name]).norm() / expected[name].norm()) for name in found
    }
    print(f"largest relative difference from the plain loop: {max(differences.values()):.1e}")
    assert {name.partition(".")[0] for name in found} >= {"first", "second", "last"}
    assert max(differences.values()) < 1e-9, differences
    if "unused" in features:
        assert torch.equal(found["unused"], expected["unused"])
    assert_audit(members, job, worlds=3)


@pytest.mark.long
def test_a_reproducible_job_through_a_death_and_a_join_equals_one_process_to_the_bit(tmp_path: Path) -> None:
    keys = {"epochs": 60, "reproducible": True, "granule": 4, "keep_best": True}
    chain = regression_job(tmp_path / "chain" / "regression", frozenset({"weighted"}), **keys)
    alone = regression_job(tmp_path / "alone" / "regression", frozenset({"weighted"}), **keys)
    with hand_world(chain, tmp_path / "state") as world:
        death_and_join(world, 100, 220)
    with hand_world(alone, tmp_path / "state-alone") as world:
        (only,) = world.start(1)
        world.form([only])
        world.finish([only])
        world.shut_down([only])
    results = [(job / "result" / "model.safetensors").read_bytes() for job in (chain, alone)]
    assert results[0] == results[1]
    assert summary(chain)["rounds_alike"] is True
    assert summary(alone)["audit"]["steps_committed"] == 420
    assert only.found(TrainerReady)[0][1].rounding == world.trainers[0].found(TrainerReady)[0][1].rounding
