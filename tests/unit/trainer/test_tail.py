"""The tail's sums are exact and do not depend on their order."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daisychain.trainer.engine.tail import LARGEST, ExactSum, Sums, Tail, value_of

reasonable = st.floats(-1e12, 1e12).filter(lambda value: value == 0 or abs(value) > 2.0**-27)


def summed(groups: list[list[float]]) -> float:
    """Return what ranks that each add one group read after the reduction."""
    total = [0, 0, 0]
    for group in groups:
        own = ExactSum()
        for value in group:
            own.add(value)
        total = [a + b for a, b in zip(total, own.limbs(), strict=True)]
    return value_of(total)


@given(
    values=st.lists(reasonable, max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=3),
    seed=st.integers(),
)
def test_sums_are_exact_on_any_split(values: list[float], cuts: list[int], seed: int) -> None:
    exact = float(sum(map(Fraction, values), Fraction(0)))
    random.Random(seed).shuffle(values)
    bounds = [0, *sorted(cuts), 40]
    groups = [values[a:b] for a, b in pairwise(bounds)]
    assert summed(groups) == exact


def test_limbs_fit_an_int64_with_room_for_64_ranks() -> None:
    for value in (LARGEST, -LARGEST, -(2.0**-80), 0.1):
        own = ExactSum()
        own.add(value)
        assert all(abs(limb) * 64 < 2**63 for limb in own.limbs())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300])
def test_what_is_not_finite_is_flagged_and_adds_nothing(value: float) -> None:
    own = ExactSum()
    own.add(1.5)
    own.add(value)
    assert not own.finite
    assert value_of(own.limbs()) == 1.5


def test_a_tail_says_what_any_rank_saw() -> None:
    first, second = Sums(used=[True, False, False]), Sums(used=[False, False, True])
    first.loss.add(2.5)
    second.loss.add(-0.25)
    first.weight.add(3.0)
    first.samples, second.samples = 4, 5
    second.out_of_range = True
    total = [a + b for a, b in zip(first.numbers(), second.numbers(), strict=True)]
    assert Tail.of(total) == Tail(3.0, 2.25, 9, False, True, (True, False, True))
    second.weight.add(math.nan)
    assert Tail.of(second.numbers()).not_finite
