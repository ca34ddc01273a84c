"""What `make bench-drift` and `make bench-reproducible` make of their measurements."""

from __future__ import annotations

import pytest
import torch

from bench import drift, reproducible
from daisychain.trainer.state.sketch import Sketcher


def test_a_difference_is_told_relative_to_each_tensors_norm() -> None:
    sketcher = Sketcher()
    tensors = [torch.full((100,), 1e3), torch.full((100,), 1e-3), torch.ones(5), torch.zeros(3)]
    spoilt = [tensors[0] * 1.5, tensors[1] * 1.5, *tensors[2:]]
    one, other = (
        torch.tensor([number for tensor in each for number in sketcher.of(tensor)], dtype=torch.float64)
        for each in (tensors, spoilt)
    )
    large, small, same, zero = drift.differences(one, other)
    assert large == pytest.approx(small, rel=1e-6)
    assert large >= 1 / 3
    assert same == zero == 0.0


def test_the_price_is_the_median_of_each_rounds_own_ratio() -> None:
    """A machine that slows down between rounds changes both, not their ratio."""
    told = reproducible.summed_up([(300.0, 100.0), (30.0, 10.0), (500.0, 100.0)])
    assert told == {
        "default_samples_per_s": 300.0,
        "reproducible_samples_per_s": 100.0,
        "price": 3.0,
        "prices": [3.0, 3.0, 5.0],
    }


def test_the_tables_name_every_model_and_case(capsys: pytest.CaptureFixture[str]) -> None:
    told = reproducible.summed_up([(1234.0, 617.0)])
    reproducible.print_table({"a model": {"parameters": 1, "processes": {"1": told, "2": told}}})
    drift.print_table({"cnn adam float32": [{"step": 500, "model": 3e-7, "optimizer": 2e-7}]})
    printed = capsys.readouterr().out
    for text in ("a model", "1,234 / 617", "2.00", "cnn adam float32", "500", "3.0e-07 / 2.0e-07"):
        assert text in printed, text
