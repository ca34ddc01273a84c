"""A few numbers tell models apart, and only those that differ by more than rounding."""

from __future__ import annotations

import math

import pytest
import torch

from daisychain.trainer.state.sketch import Sketcher, differ

TOLERANCE = 1e-6


@pytest.mark.parametrize("size", [1, 5, 16_381, 16_382, 100_000])
def test_a_change_of_any_element_beyond_the_tolerance_is_seen(size: int) -> None:
    sketcher = Sketcher()
    tensor = torch.randn(size, generator=torch.Generator().manual_seed(size), dtype=torch.float64)
    own = sketcher.of(tensor)
    assert not differ(own, Sketcher().of(tensor * (1 + 1e-8)), TOLERANCE)
    for index in {0, size // 2, size - 1}:
        changed = tensor.clone()
        changed[index] += 1e-5 * tensor.norm()
        assert differ(own, sketcher.of(changed), TOLERANCE), index


def test_a_change_that_keeps_the_norm_is_seen() -> None:
    sketcher = Sketcher()
    tensor = torch.randn(50_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for changed in (-tensor, tensor.flip(0), tensor.roll(16_381)):
        assert differ(sketcher.of(tensor), sketcher.of(changed), TOLERANCE)


def test_no_elements_are_zero_and_equal_themselves() -> None:
    assert Sketcher().of(torch.empty(0)) == (0.0, 0.0, 0.0)
    assert not differ(Sketcher().of(torch.empty(0)), Sketcher().of(torch.empty(0)), TOLERANCE)
    assert differ(Sketcher().of(torch.empty(0)), Sketcher().of(torch.ones(1)), TOLERANCE)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_differs_from_everything(bad: float) -> None:
    found = Sketcher().of(torch.tensor([1.0, bad]))
    assert not all(map(math.isfinite, found))
    assert differ(found, found, TOLERANCE)


def test_sketches_of_other_lengths_differ() -> None:
    assert differ((1.0, 1.0, 1.0), (1.0, 1.0, 1.0) * 2, TOLERANCE)
