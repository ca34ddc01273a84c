"""Who takes how much of a batch: the integer split that ends soonest.

The work is counted in units: single samples, or granules where the job has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GAIN = 0.03
"""Shares change when the whole step, exchange and all, would take this much less."""

DOUBT = 0.1
"""A fixed cost is known no better than this: what the optimum gains by less of it is taken for noise."""

SHOWN = 4
"""One part in so many of its proportional share is left to each node: it goes on showing its speed."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """How long one node takes for ``n`` units of a step: ``fixed_s + per_unit_s * n``, n <= max_units.

    Attributes:
        fixed_s: seconds a step costs whatever its share; >= 0.
        per_unit_s: seconds one unit costs; > 0.
        max_units: most units of one step that its memory carries; >= 0.
    """

    fixed_s: float
    per_unit_s: float
    max_units: int = 1 << 30

    def step_s(self, units: int) -> float:
        """Return the predicted seconds for ``units``; a node without a share costs nothing."""
        return 0.0 if units == 0 else self.fixed_s + self.per_unit_s * units


def amortised(capacities: Sequence[Capacity], units: int) -> tuple[Capacity, ...]:
    """Return the capacities with each fixed cost spread over ``units``: pure speeds, in seconds a unit.

    Splitting by these gives shares in proportion to the speed that each node shows on a whole batch.
    On small models the fixed cost is most of a step and mostly noise: the split that ends soonest would
    leave equal machines idle by turns (see docs/decisions/0009).
    """
    if units == 0:
        return tuple(capacities)
    return tuple(Capacity(0.0, each.step_s(units) / units, each.max_units) for each in capacities)


def proportional(capacities: Sequence[Capacity], units: int) -> tuple[int, ...]:
    """Return the shares in proportion to the speeds that the nodes show on a whole batch."""
    return split(amortised(capacities, units), units)


def optimum(capacities: Sequence[Capacity], units: int) -> tuple[int, ...]:
    """Return the shares that end the step soonest and leave each node a part of its proportional one.

    A node that should have next to nothing costs its fixed part all the same: it should stand by, and that is
    for the forecast to say.
    """
    least = [-(-share // SHOWN) for share in proportional(capacities, units)]
    return split(capacities, units, least)


def computing_s(capacities: Sequence[Capacity], shares: Sequence[int]) -> float:
    """Return the seconds until the last node has computed its share."""
    return max(each.step_s(units) for each, units in zip(capacities, shares, strict=True))


def optimum_gains(capacities: Sequence[Capacity], units: int, whole_s: float) -> bool:
    """Whether the optimum ends a step of ``whole_s`` seconds sooner than proportional shares by enough.

    Enough is `GAIN` of the step, and more than the doubt in the fixed costs can pretend.
    """
    proportional_s = computing_s(capacities, proportional(capacities, units))
    gain_s = proportional_s - computing_s(capacities, optimum(capacities, units))
    return gain_s > GAIN * max(proportional_s, whole_s) + DOUBT * max(each.fixed_s for each in capacities)


def split(capacities: Sequence[Capacity], units: int, least: Sequence[int] = ()) -> tuple[int, ...]:
    """Return the shares, one for each capacity, that sum to ``units`` and end the step soonest.

    Minimises ``max_i(capacities[i].step_s(n_i))`` over integers ``least_i <= n_i <= max_units``.
    ``least``: zeros unless given; within the caps, and within ``units`` in sum.
    Ties go to the earlier rank, so every rank computes the same split from the same numbers.
    Units beyond all the caps are spread over the ranks in proportion to their caps (the trainer
    then takes several micro-batches); at least one rank must be given.
    """
    count = len(capacities)
    if count == 0:
        raise ValueError("split() needs at least one capacity")
    if units == 0:
        return (0,) * count
    caps = [min(capacity.max_units, units) for capacity in capacities]
    if sum(caps) < units:
        scale = -(-units // max(1, sum(caps)))
        caps = [min(units, max(1, cap) * scale) for cap in caps]

    floors = list(least) or [0] * count

    def fits(limit_s: float) -> list[int]:
        shares = []
        for capacity, cap, floor in zip(capacities, caps, floors, strict=True):
            room = (limit_s - capacity.fixed_s) / capacity.per_unit_s
            shares.append(max(floor, min(cap, int(room + 1e-9))) if room >= 1 - 1e-9 else floor)
        return shares

    low, high = 0.0, max(capacity.fixed_s + capacity.per_unit_s * units for capacity in capacities)
    for _ in range(80):
        middle = (low + high) / 2
        if sum(fits(middle)) >= units:
            high = middle
        else:
            low = middle
    shares = fits(high)
    excess = sum(shares) - units
    while excess > 0:  # take back from whoever ends last
        last = max(
            (index for index in range(count) if shares[index] > floors[index]),
            key=lambda index: (capacities[index].step_s(shares[index]), index),
        )
        shares[last] -= 1
        excess -= 1
    return tuple(shares)
