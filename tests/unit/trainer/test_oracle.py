"""Each thing that can go wrong in a sum over nodes, by itself, against a plain loop without a line of ours.

The loop is `support.oracle`: the user's file, torch and numpy, nothing of the product.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from daisychain.core.ids import RunId
from daisychain.trainer.engine.engine import Engine
from daisychain.trainer.engine.exchange import Exchange
from daisychain.trainer.engine.timeline import Timeline
from daisychain.trainer.jobs.load import load_job
from daisychain.trainer.state.training_state import Action, TrainingState
from daisychain.wire.job_yaml import parse_job
from support.engine_jobs import changing
from support.job_folders import regression_job
from support.local_exchange import LocalWorld
from support.oracle import train_plainly
from support.plans import generation

EPOCHS = 5

States = list[dict[str, torch.Tensor]]


@pytest.fixture(autouse=True)
def import_path() -> Iterator[None]:
    path, bytecode = list(sys.path), sys.dont_write_bytecode
    yield
    sys.path[:], sys.dont_write_bytecode = path, bytecode


def trained(job: Path, size: int) -> States:
    """Train ``job`` in a world of ``size`` ranks, shares changing each step; return each rank's model."""

    def main(exchange: Exchange) -> dict[str, torch.Tensor]:
        loaded = load_job(job, parse_job((job / "job.yaml").read_text()), torch.device("cpu"))
        timeline = Timeline.of(loaded.spec, len(loaded.train), loaded.validation is not None)
        state = TrainingState(RunId("0" * 16 + "-1"), Engine(loaded, timeline))
        while (action := state.next()) is not Action.FINISH:
            engine = state.engine
            if action is Action.EVALUATE:
                shares = changing(state.step, engine.evaluation_units(), exchange.size)
                state.commit_evaluation(engine.evaluate(exchange, shares), generation())
            else:
                position = timeline.position(state.step)
                shares = changing(state.step, engine.units(position), exchange.size)
                state.commit_step(engine.reduce_step(exchange, position, shares), generation())
        return {name: tensor.detach().clone() for name, tensor in loaded.model.state_dict().items()}

    return LocalWorld(size).run(main)


def difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).norm() / other[name].norm()) for name in one)


@pytest.mark.parametrize(
    "feature", ["plain", "weighted", "unused", "tied", "clipping", "schedule", "plateau"]
)
def test_each_alone_matches_a_plain_loop(tmp_path: Path, feature: str) -> None:
    job = regression_job(tmp_path / "regression", frozenset({feature}), epochs=EPOCHS)
    clip = 0.05 if feature == "clipping" else None
    expected = train_plainly(job / "job.py", seed=3, batch=32, epochs=EPOCHS, clip=clip)
    for state in trained(job, 3):
        assert difference(state, expected) < 1e-11
    if feature == "unused":
        assert torch.equal(expected["unused"], trained(job, 1)[0]["unused"]), "weight decay leaves it alone"


@pytest.mark.parametrize("feature", ["weighted", "tied", "clipping", "schedule", "plateau"])
def test_each_makes_a_difference(tmp_path: Path, feature: str) -> None:
    """Or the comparison above would say nothing of it."""
    jobs = [
        regression_job(tmp_path / name / "regression", frozenset({name}), epochs=EPOCHS)
        for name in ("plain", feature)
    ]
    clips = (None, 0.05 if feature == "clipping" else None)
    plain, other = (
        train_plainly(job / "job.py", seed=3, batch=32, epochs=EPOCHS, clip=clip)
        for job, clip in zip(jobs, clips, strict=True)
    )
    assert difference(other, plain) > 1e-6
