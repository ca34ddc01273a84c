"""Real trainers whose replicas differ: by a fault, found and repaired, or by rounding, left as it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from daisychain.core.ids import Generation
from daisychain.core.reports import TrainerReady, WorldFormed
from daisychain.core.rounding import DIFFERENTLY
from support.hand_world import HandTrainer, HandWorld, hand_world
from support.job_folders import noisy_job
from support.waiting import until

PLAIN = torch.backends.cpu.get_cpu_capability() == "DEFAULT"
pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.skipif(PLAIN, reason="this processor has nothing that torch could go without"),
]

OTHER = {"ATEN_CPU_CAPABILITY": "default"}
"""torch without fused and wide arithmetic: a machine that rounds differently."""

OTHER_CONVOLUTIONS = {"ONEDNN_MAX_CPU_ISA": "SSE41"}
"""The same for convolutions alone."""

AUDIT = 500
"""Steps between two comparisons, see `ticks.AUDIT_EVERY_STEPS`."""


def received(members: Sequence[HandTrainer], generation: Generation) -> list[bool]:
    found = []
    for member in members:
        found.append(member.wait(WorldFormed, lambda each: each.generation == generation)[1].received)
    return found


def rounding(trainer: HandTrainer) -> str:
    return trainer.found(TrainerReady)[0][1].rounding


def summary(job: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((job / "result" / "summary.json").read_text())
    return found


def models(members: Sequence[HandTrainer]) -> set[bytes]:
    return {(member.run_folder / "model.safetensors").read_bytes() for member in members}


def finish(world: HandWorld, members: Sequence[HandTrainer]) -> None:
    world.finish(members, timeout_s=120.0)
    world.shut_down(members)


@pytest.mark.parametrize(
    ("plant", "reproducible"),
    [
        (f"{AUDIT - 100} parameter\n{2 * AUDIT - 2} moment\n{3 * AUDIT} buffer\n", False),
        (f"{AUDIT} moment\n", True),
    ],
    ids=["default", "reproducible"],
)
def test_a_difference_in_one_of_three_replicas_is_found_repaired_told_and_counted(
    tmp_path: Path, plant: str, reproducible: bool
) -> None:
    """A parameter, one of Adam's moments, a buffer, by a thousandth; the others outvote it each time."""
    times = plant.count("\n")
    job = noisy_job(tmp_path / "noisy", steps=times * AUDIT + 20, reproducible=reproducible, granule=16)
    with hand_world(job, tmp_path / "state") as world:
        a = world.begin()
        world.begin()
        world.begin()
        (a.run_folder / "plant").write_text(plant)  # long before it has imported torch
        for trainer in world.trainers:
            trainer.wait(TrainerReady, timeout_s=60.0)
        world.form(world.trainers)
        finish(world, world.trainers)
        logs = [trainer.log() for trainer in world.trainers]
        assert [log.count("node0 had drifted and was repaired") for log in logs] == [times] * 3
        assert [log.count("had drifted") for log in logs] == [times] * 3
        assert len(models(world.trainers)) == 1
    found = summary(job)
    assert (found["repairs"], found["rounds_alike"]) == (times, True)


def test_of_two_replicas_that_differ_the_lower_id_keeps_its_state(tmp_path: Path) -> None:
    job = noisy_job(tmp_path / "noisy", steps=AUDIT + 20, granule=16)
    with hand_world(job, tmp_path / "state") as world:
        a, b = world.begin(), world.begin()
        (b.run_folder / "plant").write_text(f"{AUDIT} parameter\n")
        for trainer in (a, b):
            trainer.wait(TrainerReady, timeout_s=60.0)
        world.form([b, a])
        finish(world, [a, b])
        assert "node1 had drifted and was repaired" in a.log()
        assert len(models([a, b])) == 1
    assert summary(job)["repairs"] == 1


def test_replicas_that_round_differently_need_no_state_and_no_repair_until_one_differs_by_more(
    tmp_path: Path,
) -> None:
    """Default mode, one machine of another kind: worlds that form again, an audit, a planted difference."""
    job = noisy_job(tmp_path / "noisy", steps=2 * AUDIT + 20, granule=16)
    with hand_world(job, tmp_path / "state") as world:
        a, b = world.begin(), world.begin()
        c = world.begin(OTHER)
        (c.run_folder / "plant").write_text(f"{AUDIT + 100} parameter\n")
        members = [a, b, c]
        for trainer in members:
            trainer.wait(TrainerReady, timeout_s=60.0)
        world.form(members)
        for step in (50, 150, 300):
            world.reach(a, step)
            assert received(members, world.form(members)) == [False, False, False]
        world.reach(a, AUDIT + 1)
        assert "drifted" not in a.log()
        until(lambda: "node2 had drifted and was repaired" in a.log(), 60.0, "the planted difference")
        finish(world, members)
        assert all(log.count("had drifted") == 1 for log in (each.log() for each in members))
        assert len(models([a, b])) == 1
    found = summary(job)
    assert (found["repairs"], found["rounds_alike"]) == (1, False)


def test_in_reproducible_mode_machines_that_round_differently_are_told_before_step_1_and_go_on(
    tmp_path: Path,
) -> None:
    """Each kind keeps its own bits; a joiner takes those of its kind, and nobody is called drifted."""
    job = noisy_job(tmp_path / "noisy", steps=AUDIT + 20, granule=16, reproducible=True)
    with hand_world(job, tmp_path / "state") as world:
        a = world.begin()
        b, joiner = world.begin(OTHER), world.begin(OTHER)
        for trainer in (a, b, joiner):
            trainer.wait(TrainerReady, timeout_s=60.0)
        assert rounding(a) != rounding(b) == rounding(joiner)
        world.form([a, b])
        world.reach(a, 50)
        assert received([a, b], world.form([a, b])) == [False, False]
        world.reach(a, 150)
        assert received([a, b, joiner], world.form([a, b, joiner])) == [False, False, True]
        world.reach(a, 200)
        assert received([a, b, joiner], world.form([a, b, joiner])) == [False, False, False]
        finish(world, [a, b, joiner])
        for trainer in (a, b, joiner):
            log = trainer.log()
            assert log.index(DIFFERENTLY) < log.index("formed in")
            assert "drifted" not in log
        assert len(models([b, joiner])) == 1
    found = summary(job)
    assert (found["repairs"], found["rounds_alike"]) == (0, False)


def test_a_run_that_was_in_a_mixed_world_once_says_so_wherever_it_ends(tmp_path: Path) -> None:
    job = noisy_job(tmp_path / "noisy", steps=120, granule=16, reproducible=True)
    with hand_world(job, tmp_path / "state") as world:
        a, b, c = world.begin(), world.begin(OTHER_CONVOLUTIONS), world.begin()
        for trainer in (a, b, c):
            trainer.wait(TrainerReady, timeout_s=60.0)
        assert rounding(a) == rounding(c) != rounding(b)
        world.form([a, b])
        world.reach(a, 20)
        world.form([a, c])
        world.reach(a, 60)
        world.form([c])
        finish(world, [c])
        assert DIFFERENTLY not in c.log()
    assert summary(job)["rounds_alike"] is False
