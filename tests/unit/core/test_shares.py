from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daisychain.core.shares import (
    Capacity,
    amortised,
    computing_s,
    optimum,
    optimum_gains,
    proportional,
    split,
)

CAPACITIES = st.builds(
    Capacity,
    fixed_s=st.sampled_from([0.0, 0.01, 0.5]),
    per_unit_s=st.sampled_from([0.001, 0.01, 0.02, 0.3]),
    max_units=st.sampled_from([0, 1, 3, 100]),
)


def best_max(capacities: list[Capacity], units: int, least: list[int] | None = None) -> float | None:
    """Return the least possible step time by trying every split; None when the caps hold none."""
    floors = least or [0] * len(capacities)
    ranges = [
        range(floor, min(capacity.max_units, units) + 1)
        for capacity, floor in zip(capacities, floors, strict=True)
    ]
    times = [
        max(capacity.step_s(share) for capacity, share in zip(capacities, shares, strict=True))
        for shares in itertools.product(*ranges)
        if sum(shares) == units
    ]
    return min(times, default=None)


@settings(max_examples=150, deadline=None)
@given(st.lists(CAPACITIES, min_size=1, max_size=3), st.integers(0, 12))
def test_the_split_ends_as_soon_as_any_split_can(capacities: list[Capacity], units: int) -> None:
    shares = split(capacities, units)
    assert sum(shares) == units
    assert all(share >= 0 for share in shares)
    best = best_max(capacities, units)
    if best is not None:
        assert all(share <= capacity.max_units for capacity, share in zip(capacities, shares, strict=True))
        took = max(capacity.step_s(share) for capacity, share in zip(capacities, shares, strict=True))
        assert took == pytest.approx(best, rel=1e-9, abs=1e-12)


@given(st.lists(CAPACITIES, min_size=1, max_size=16), st.integers(0, 5000))
def test_every_unit_is_taken_whatever_the_caps(capacities: list[Capacity], units: int) -> None:
    assert sum(split(capacities, units)) == units


def test_speeds_four_two_one_share_in_that_proportion() -> None:
    assert split([Capacity(0.0, 1.0), Capacity(0.0, 2.0), Capacity(0.0, 4.0)], 700) == (400, 200, 100)


def test_a_node_too_slow_to_help_gets_nothing() -> None:
    assert split([Capacity(0.0, 0.001), Capacity(10.0, 0.001)], 100) == (100, 0)


def test_nobody_to_share_among_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one capacity"):
        split([], 3)


def test_shares_by_amortised_capacities_follow_the_speed_on_a_whole_batch() -> None:
    fast, slow = Capacity(0.001, 0.00001), Capacity(0.004, 0.00004)  # a quarter of the speed
    assert split([fast, slow], 128) == (128, 0)  # it would end soonest
    assert split(amortised([fast, slow], 128), 128) == (103, 25)


def test_noise_in_the_fixed_cost_leaves_equal_nodes_their_equal_parts() -> None:
    nodes = [Capacity(0.0010, 1e-6), Capacity(0.0011, 1e-6), Capacity(0.0009, 1e-6)]
    shares = split(amortised(nodes, 128), 128)
    assert max(shares) - min(shares) <= 0.25 * max(shares)


def test_nothing_to_share_amortises_nothing() -> None:
    nodes = (Capacity(0.1, 0.2), Capacity(0.3, 0.4))
    assert amortised(nodes, 0) == nodes


PLAIN = st.builds(Capacity, fixed_s=st.floats(0.0, 0.1), per_unit_s=st.floats(1e-4, 0.1))


@settings(max_examples=150, deadline=None)
@given(st.lists(PLAIN, min_size=1, max_size=3), st.integers(1, 14))
def test_the_optimum_is_the_soonest_of_all_that_leave_everyone_a_quarter(
    capacities: list[Capacity], units: int
) -> None:
    least = [-(-share // 4) for share in proportional(capacities, units)]
    shares = optimum(capacities, units)
    assert sum(shares) == units
    assert all(share >= floor for share, floor in zip(shares, least, strict=True))
    assert computing_s(capacities, shares) == pytest.approx(best_max(capacities, units, least), rel=1e-9)


@settings(deadline=None)
@given(st.lists(PLAIN, min_size=1, max_size=8), st.integers(1, 512))
def test_the_optimum_never_ends_later_than_proportional_shares(
    capacities: list[Capacity], units: int
) -> None:
    assert computing_s(capacities, optimum(capacities, units)) <= (
        computing_s(capacities, proportional(capacities, units)) * (1 + 1e-9)
    )


@settings(deadline=None)
@given(
    st.floats(1e-4, 0.1),
    st.floats(1e-6, 0.1),
    st.lists(st.floats(0.95, 1.05), min_size=2, max_size=6),
    st.integers(8, 512),
)
def test_noise_in_the_fixed_costs_of_equal_nodes_never_makes_the_optimum_pay(
    fixed_s: float, per_unit_s: float, noise: list[float], units: int
) -> None:
    assert not optimum_gains([Capacity(fixed_s * each, per_unit_s) for each in noise], units, 0.0)


CARD_AND_TWO = [Capacity(0.060, 0.0006), *[Capacity(0.0, 0.0012)] * 2]
"""On a whole batch of 100 equally fast; a step costs the first one much whatever its share."""


def test_where_fixed_costs_are_unlike_the_optimum_gains() -> None:
    before = proportional(CARD_AND_TWO, 99)
    assert max(before) - min(before) <= 1
    after = optimum(CARD_AND_TWO, 99)
    assert computing_s(CARD_AND_TWO, after) < 0.9 * computing_s(CARD_AND_TWO, before)
    assert after[0] >= before[0] // 4, "it goes on showing its speed"
    assert optimum_gains(CARD_AND_TWO, 99, 0.0)
    assert not optimum_gains(CARD_AND_TWO, 99, 1.0), "the exchange is nearly all of the step"


def test_where_the_samples_are_nearly_all_of_a_step_both_rules_agree() -> None:
    nodes = [Capacity(0.001, 0.01), Capacity(0.002, 0.02), Capacity(0.001, 0.04)]
    pairs = zip(proportional(nodes, 700), optimum(nodes, 700), strict=True)
    assert all(abs(one - other) <= 1 for one, other in pairs)
    assert not optimum_gains(nodes, 700, 0.0)
