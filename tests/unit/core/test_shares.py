from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daisychain.core.shares import Capacity, amortised, split

CAPACITIES = st.builds(
    Capacity,
    fixed_s=st.sampled_from([0.0, 0.01, 0.5]),
    per_unit_s=st.sampled_from([0.001, 0.01, 0.02, 0.3]),
    max_units=st.sampled_from([0, 1, 3, 100]),
)


def best_max(capacities: list[Capacity], units: int) -> float | None:
    """Return the least possible step time by trying every split; None when the caps hold none."""
    ranges = [range(min(capacity.max_units, units) + 1) for capacity in capacities]
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
