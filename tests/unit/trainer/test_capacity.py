"""Measured speeds, and the shares that follow them."""

from __future__ import annotations

import dataclasses
import itertools
import random
import statistics
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from daisychain.core.shares import Capacity, computing_s, optimum, proportional, split
from daisychain.trainer.engine import capacity, threads
from daisychain.trainer.engine.capacity import Speeds, line, measure
from daisychain.trainer.engine.engine import Engine
from daisychain.trainer.engine.timeline import Timeline
from support.engine_jobs import Noisy, Recipe, adam, identical, state_of

UNITS = 120


class Clock:
    """Time that passes only when somebody computes."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def priced(engine: Engine, clock: Clock, price: Callable[[int], float]) -> Engine:
    """Return the engine, its every computation taking ``price(units)`` seconds of ``clock``."""
    compute = engine.computer.compute

    def timed(position: object, units: range) -> object:
        clock.now += price(len(units))
        return compute(position, units)  # type: ignore[arg-type]

    engine.computer.compute = timed  # type: ignore[assignment,method-assign]
    return engine


def test_a_capacity_is_the_line_through_what_was_measured() -> None:
    clock = Clock()
    engine = priced(Recipe(batch=64).engine(), clock, lambda units: 0.004 + 0.0005 * units)
    found = measure(engine, 1.0, clock)
    assert found.fixed_s == pytest.approx(0.004, rel=1e-6)
    assert found.per_unit_s == pytest.approx(0.0005, rel=1e-6)
    assert clock.now - 100.0 < 1.5


def test_a_slow_moment_and_a_slow_start_change_nothing() -> None:
    clock, calls = Clock(), [0]

    def price(units: int) -> float:
        calls[0] += 1
        return (0.004 + 0.0005 * units) * (10.0 if calls[0] in (1, 25) else 1.0)

    found = measure(priced(Recipe(batch=64).engine(), clock, price), 1.0, clock)
    assert calls[0] > 30
    assert found.step_s(64) == pytest.approx(0.036, rel=0.01)


class Quota:
    """A processor that stops once ``allowed`` of a period is used, until the next period begins."""

    def __init__(self, allowed: float, period_s: float) -> None:
        self.allowed_s, self.period_s = allowed * period_s, period_s
        self.used_s = 0.0

    def wall_s(self, cpu_s: float) -> float:
        """Return what ``cpu_s`` of work take, from where the last work ended."""
        self.used_s += cpu_s
        stops = int(self.used_s / self.allowed_s)
        self.used_s -= stops * self.allowed_s
        return cpu_s + stops * (self.period_s - self.allowed_s)


@pytest.mark.parametrize("period_s", [0.005, 0.1])
@pytest.mark.parametrize("scale", [0.5, 1.0, 5.0])
def test_the_stops_of_a_quota_are_part_of_the_speed(period_s: float, scale: float) -> None:
    clock, quota = Clock(), Quota(0.25, period_s)

    def price(units: int) -> float:
        return quota.wall_s(scale * (0.0003 + 0.000002 * units))

    found = measure(priced(Recipe(batch=64).engine(), clock, price), 1.0, clock)
    assert found.step_s(64) == pytest.approx(4 * scale * (0.0003 + 0.000002 * 64), rel=0.15)


def test_a_machine_slower_than_the_budget_is_measured_all_the_same() -> None:
    clock = Clock()
    found = measure(priced(Recipe(batch=64).engine(), clock, lambda units: 2.0 * units), 1.0, clock)
    assert found.per_unit_s == pytest.approx(2.0)


@pytest.mark.parametrize("reproducible", [False, True])
def test_measuring_leaves_no_trace(reproducible: bool) -> None:
    engine = Recipe(Noisy, adam, granules=True, reproducible=reproducible).engine()
    before, generator = state_of(engine.job), torch.get_rng_state()
    found = measure(engine, 0.01)
    assert found.per_unit_s > 0
    assert identical(before, state_of(engine.job))
    assert torch.equal(generator, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in engine.job.model.parameters())


@given(
    small_s=st.floats(1e-6, 10), large_s=st.floats(1e-6, 10), small=st.integers(1, 9), more=st.integers(0, 90)
)
def test_noise_never_makes_a_capacity_absurd(small_s: float, large_s: float, small: int, more: int) -> None:
    found = line(small, small_s, small + more, large_s)
    assert found.fixed_s >= 0 and found.per_unit_s > 0
    assert found.step_s(small + more) == pytest.approx(large_s, rel=1e-6)


# --- shares that follow ----------------------------------------------------------------------------------


def drive(
    speeds: Speeds, steps: int, took_s: Callable[[int, int, int], float], units: int = UNITS
) -> list[tuple[int, ...]]:
    """Run ``steps``, rank r taking ``took_s(step, r, its units)``; return the shares of each."""
    found = []
    for step in range(steps):
        shares = speeds.shares(units)
        found.append(shares)
        speeds.observe(shares, [took_s(step, rank, own) for rank, own in enumerate(shares)])
    return found


def even(size: int) -> Speeds:
    return Speeds([Capacity(0.001, 0.001)] * size)


def test_one_rank_takes_all() -> None:
    speeds = even(1)
    assert drive(speeds, 3, lambda step, rank, units: 0.1) == [(UNITS,)] * 3


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_halved_speed_is_followed_within_ten_steps(size: int) -> None:
    def took_s(step: int, rank: int, units: int) -> float:
        return (0.001 + 0.001 * units) * (2.0 if rank == 1 and step >= 20 else 1.0)

    history = drive(even(size), 40, took_s)
    assert history[19] == split([Capacity(0.001, 0.001)] * size, UNITS)
    slowed = [Capacity(0.001, 0.001) if rank != 1 else Capacity(0.002, 0.002) for rank in range(size)]
    best_s = max(each.step_s(own) for each, own in zip(slowed, split(slowed, UNITS), strict=True))
    for shares in history[30:]:
        assert max(each.step_s(own) for each, own in zip(slowed, shares, strict=True)) <= 1.04 * best_s


def test_a_single_slow_step_changes_nothing() -> None:
    history = drive(even(3), 30, lambda step, rank, units: (0.001 + 0.001 * units) * (9 if step == 11 else 1))
    assert len(set(history)) == 1
    history = drive(
        even(3), 30, lambda step, rank, units: (0.001 + 0.001 * units) * (9 if (step, rank) == (11, 2) else 1)
    )
    assert len(set(history)) == 1


def test_small_differences_do_not_make_shares_flap() -> None:
    noise = random.Random(4)
    history = drive(
        even(3), 300, lambda step, rank, units: (0.001 + 0.001 * units) * noise.uniform(0.99, 1.01)
    )
    assert len(set(history)) == 1


@pytest.mark.parametrize("period_s", [0.005, 0.1])
def test_a_quota_that_comes_later_is_followed_though_most_steps_do_not_show_it(period_s: float) -> None:
    quota = Quota(0.25, period_s)

    def took_s(step: int, rank: int, units: int) -> float:
        cpu_s = 0.0001 + 0.00002 * units
        return quota.wall_s(cpu_s) if rank == 1 and step > 100 else cpu_s

    history = drive(Speeds([Capacity(0.0001, 0.00002)] * 2), 2000, took_s)
    assert history[100] == (60, 60)
    for first, second in history[1000:]:
        assert first / second == pytest.approx(4.0, rel=0.25)


def test_shares_stay_where_the_step_would_not_end_sooner() -> None:
    """Where the exchange is most of a step, what the computing seems to take is mostly noise."""
    noise = random.Random(5)
    speeds = even(2)
    for _ in range(500):
        shares = speeds.shares(UNITS)
        speeds.observe(shares, [noise.uniform(0.5, 1.5) * (0.001 + 0.001 * own) for own in shares], 1.5)
        assert shares == (60, 60)


def test_a_whole_chain_that_slows_down_keeps_its_shares() -> None:
    history = drive(even(3), 40, lambda step, rank, units: (0.001 + 0.001 * units) * (3 if step > 9 else 1))
    assert len(set(history)) == 1


def test_a_node_left_out_for_being_slow_is_tried_again() -> None:
    def took_s(step: int, rank: int, units: int) -> float:
        slow = 500.0 if rank == 1 and 5 <= step < 15 else 1.0
        return (0.001 + 0.001 * units) * slow

    history = drive(even(2), 600, took_s)
    assert any(shares[1] == 0 for shares in history)
    assert history[-1][1] > UNITS * 0.4


@given(
    seed=st.integers(0, 1 << 20),
    size=st.integers(1, 6),
    units=st.lists(st.integers(1, 64), min_size=1, max_size=30),
)
def test_every_rank_computes_the_same_shares_and_all_units_are_given(
    seed: int, size: int, units: Sequence[int]
) -> None:
    source = random.Random(seed)
    capacities = [Capacity(source.uniform(0, 0.1), source.uniform(1e-4, 0.1)) for _ in range(size)]
    here, there = Speeds(capacities), Speeds(capacities)
    for own in units:
        shares = here.shares(own)
        assert shares == there.shares(own)
        assert sum(shares) == own and min(shares) >= 0
        seconds = [source.uniform(0, 1) for _ in range(size)]
        here.observe(shares, seconds)
        there.observe(shares, seconds)
    assert here.capacities() == there.capacities()
    assert capacity.WINDOW >= 3


def settled_s(costs: Sequence[Capacity], history: Sequence[Sequence[int]]) -> float:
    """Return the median computing seconds of the run's second half."""
    later = history[len(history) // 2 :]
    return statistics.median(computing_s(costs, shares) for shares in later)


def changes_of(history: Sequence[Sequence[int]]) -> int:
    return sum(one != other for one, other in itertools.pairwise(history))


CARD_AND_TWO = [Capacity(0.060, 0.0005), Capacity(0.001, 0.001), Capacity(0.001, 0.001)]
"""Equally fast on a whole batch; a step costs the first one much whatever its share."""


@pytest.mark.parametrize("seed", range(5))
def test_unlike_fixed_costs_are_shared_by_the_optimum_once_and_for_all(seed: int) -> None:
    """Both costs are measured up to 10% wrong, and each step up to 5%."""
    noise = random.Random(seed)
    costs = CARD_AND_TWO

    def wrong(value: float) -> float:
        return value * noise.uniform(0.9, 1.1)

    def took_s(step: int, rank: int, units: int) -> float:
        return costs[rank].step_s(units) * noise.uniform(0.95, 1.05)

    speeds = Speeds([Capacity(wrong(each.fixed_s), wrong(each.per_unit_s)) for each in costs])
    history = drive(speeds, 400, took_s)
    in_proportion = computing_s(costs, proportional(costs, UNITS))
    assert settled_s(costs, history) < 0.97 * in_proportion
    assert settled_s(costs, history) < 1.08 * computing_s(costs, optimum(costs, UNITS))
    assert changes_of(history) <= 6


@pytest.mark.parametrize("seed", range(5))
def test_equal_nodes_whose_steps_are_mostly_fixed_cost_keep_equal_shares(seed: int) -> None:
    """The digits: 0.4 ms and a microsecond a sample; the fixed cost is measured up to 10% wrong."""
    noise = random.Random(seed)
    costs = [Capacity(0.0004, 1e-6)] * 3

    def took_s(step: int, rank: int, units: int) -> float:
        return costs[rank].step_s(units) * noise.uniform(0.9, 1.1)

    speeds = Speeds([Capacity(0.0004 * noise.uniform(0.9, 1.1), 1e-6) for _ in costs])
    history = drive(speeds, 2000, took_s)
    assert max(history[-1]) - min(history[-1]) <= 0.25 * max(history[-1])
    assert changes_of(history) <= 1


@pytest.mark.parametrize("seed", range(5))
def test_a_world_by_the_optimum_follows_a_halved_speed(seed: int) -> None:
    noise = random.Random(seed)
    costs = CARD_AND_TWO

    def took_s(step: int, rank: int, units: int) -> float:
        slow = 2.0 if rank == 1 and step >= 60 else 1.0
        return slow * costs[rank].step_s(units) * noise.uniform(0.98, 1.02)

    history = drive(Speeds(costs), 120, took_s)
    slowed = [costs[0], Capacity(0.002, 0.002), costs[2]]
    assert settled_s(slowed, history) < 1.05 * computing_s(slowed, optimum(slowed, UNITS))


# --- threads ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "reproducible", "expected"), [(None, False, 3), (None, True, 1), (2, False, 2), (2, True, 2)]
)
def test_a_job_takes_the_nodes_threads_unless_it_says_otherwise(
    own: int | None, reproducible: bool, expected: int
) -> None:
    spec = dataclasses.replace(Recipe(reproducible=reproducible).job().spec, threads=own)
    assert threads.intra_op_threads(spec, 3) == expected


def test_an_engine_leaves_the_threads_that_the_agent_chose() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        job = Recipe().job()
        job.spec = dataclasses.replace(job.spec, threads=None)
        Engine(job, Timeline.of(job.spec, len(job.train), False))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
