"""The benchmark's own audit finds what was lost, and what was done twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from bench.chain_audit import Seen, expected_visits, visits
from bench.steps import StepLine

SAMPLES, SEED, BATCH, STEPS = 64, 7, 16, 10


def model(folder: Path, counts: NDArray[np.float64]) -> Path:
    path = folder / "model.safetensors"
    save_file({"counts": counts.astype(np.float32)}, path)
    return path


def line(step: int, world: str) -> StepLine:
    return StepLine(float(step), step, 3, world, 0.1)


def test_ten_batches_of_four_an_epoch_visit_half_the_samples_a_third_time() -> None:
    wanted = expected_visits(SAMPLES, SEED, BATCH, STEPS)
    assert wanted.sum() == STEPS * BATCH
    assert sorted(set(wanted)) == [2.0, 3.0]


def test_a_model_that_saw_each_sample_as_often_as_it_should_is_clean(tmp_path: Path) -> None:
    path = model(tmp_path, expected_visits(SAMPLES, SEED, BATCH, STEPS))
    assert visits(path, SEED, BATCH, STEPS) == (0, 0)


def test_a_visit_that_is_missing_and_one_too_many_are_counted(tmp_path: Path) -> None:
    counts = expected_visits(SAMPLES, SEED, BATCH, STEPS)
    counts[3] -= 1
    counts[9] += 2
    assert visits(model(tmp_path, counts), SEED, BATCH, STEPS) == (1, 2)


def test_a_record_that_only_grows_has_lost_nothing() -> None:
    seen = Seen()
    seen.look([line(1, "1.1"), line(2, "1.1")])
    seen.look([line(2, "1.1"), line(3, "1.2")])
    assert not seen.lost


def test_a_committed_step_that_vanishes_or_is_done_again_is_lost() -> None:
    seen = Seen()
    seen.look([line(1, "1.1"), line(2, "1.1"), line(3, "1.1")])
    seen.look([line(1, "1.1"), line(2, "1.2")])
    assert seen.lost == {2, 3}


def test_a_node_that_died_begins_anew() -> None:
    seen = Seen()
    seen.look([line(1, "1.1"), line(2, "1.1")])
    seen.restarted()
    seen.look([line(1, "1.1")])
    assert not seen.lost
