"""Batches: rows of columns, or items whose augmentation is a function of (seed, split, epoch, sample)."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

from daisychain.trainer.jobs.samples import ColumnSamples, DatasetSamples, Items, moved

CPU = torch.device("cpu")


def noisy(seed: int = 0, split: str = "train") -> DatasetSamples:
    """Ten samples that draw from all three generators."""

    def item(index: int) -> dict[str, Any]:
        return {"x": torch.rand(2), "n": np.random.rand(), "p": random.random(), "index": index}

    return DatasetSamples(Items(split, 10, item, default_collate), seed, CPU, torch.float32)


def test_rows_are_taken_in_the_order_asked_for() -> None:
    samples = ColumnSamples((torch.arange(5.0), {"i": np.arange(5) * 10}), CPU, torch.float64)
    batch = samples.batch(np.array([3, 0, 3]), 0)  # type: ignore[arg-type]  # an array is as good as a list
    values, others = batch.data
    assert (len(samples), batch.samples) == (5, 3)
    assert values.tolist() == [3.0, 0.0, 3.0]
    assert values.dtype == torch.float64
    assert others["i"].tolist() == [30, 0, 30]
    assert others["i"].dtype == torch.int64


def test_a_sample_looks_the_same_whoever_takes_it_with_whom() -> None:
    together = noisy().batch([4, 2, 7], epoch=1).data
    alone = noisy().batch([7], epoch=1).data
    for name in ("x", "n", "p"):
        assert torch.equal(together[name][2:], alone[name])
    assert together["index"].tolist() == [4, 2, 7]


@pytest.mark.parametrize(
    "other", [noisy(seed=1).batch([7], 1), noisy(split="validation").batch([7], 1), noisy().batch([7], 2)]
)
def test_another_seed_split_or_epoch_looks_different(other: Any) -> None:
    first = noisy().batch([7], 1).data
    for name in ("x", "n", "p"):
        assert not torch.equal(first[name], other.data[name])


def test_what_a_batch_draws_is_nobody_elses_affair() -> None:
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    expected = torch.rand(1), np.random.rand(), random.random()
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    noisy().batch([1, 2, 3], 0)
    assert (torch.rand(1), np.random.rand(), random.random()) == expected


class Pair(NamedTuple):
    a: torch.Tensor
    b: str


def test_tensors_are_found_wherever_they_are() -> None:
    found = moved([Pair(torch.ones(1), "x"), {"k": (np.array([2], dtype=np.float32), 3)}], CPU, torch.float64)
    assert isinstance(found[0], Pair)
    assert found[0].a.dtype == found[1]["k"][0].dtype == torch.float64
    assert (found[0].b, found[1]["k"][1]) == ("x", 3)
