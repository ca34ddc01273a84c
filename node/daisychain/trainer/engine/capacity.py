"""How fast this node is at this job, and how a world's shares follow the speeds it sees.

`measure` tries the job's own model and data; `Speeds` (pure) turns each step's compute seconds into shares.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence

from daisychain.core.shares import (
    GAIN,
    Capacity,
    amortised,
    computing_s,
    optimum,
    optimum_gains,
    proportional,
    split,
)
from daisychain.trainer.engine.backoff import within_memory
from daisychain.trainer.engine.compute import MICRO_BATCH
from daisychain.trainer.engine.engine import Engine
from daisychain.trainer.engine.faults import user_code
from daisychain.trainer.engine.footprint import footprint
from daisychain.trainer.engine.gradients import clear
from daisychain.trainer.engine.memory import Kept, free_bytes, micro_batch
from daisychain.trainer.engine.randomness import restored_generators

WARM_UPS = 2
LEAST_TIMES = 3

WINDOW = 5
"""Blocks whose median speed counts: one or two slow ones change nothing."""

BLOCK_S = 0.1
"""Seconds of computing that make a block; a longer step is one by itself.

A CPU quota lets a node run at full speed and then stops it, every 100 ms with the usual settings. A step
that is shorter shows either, and most often the full speed; only a sum over such periods shows the truth.
"""

FORGIVING = 0.02
"""A node without a share shows no speed: its last one drifts back this much a step to the measured one."""


def measure(
    engine: Engine, budget_s: float = 1.0, clock: Callable[[], float] = time.perf_counter
) -> Capacity:
    """Return this node's capacity in units of the job, from forward and backward at two sizes.

    The fastest runs of both give the line; how much longer all took in sum, stops included, stretches it.
    Takes about ``budget_s`` (more only when a single unit takes longer) and leaves model, optimizer and
    generators as they were. Raises `JobError` when the job's code fails.
    """
    position = engine.timeline.position(0)
    total = engine.units(position)

    def run(units: int) -> float:
        started = clock()
        within_memory(engine.computer, lambda: engine.computer.compute(position, range(units)))
        return clock() - started

    ends_at = clock() + budget_s
    with restored_generators(), user_code(engine.job, "while its speed was measured"):
        try:
            fit_memory(engine)
            large = 1
            took_s = min(run(large) for _ in range(WARM_UPS))
            while large < total and took_s < budget_s / 20:
                large = min(total, 2 * large)
                took_s = min(run(large) for _ in range(WARM_UPS))
            small = max(1, large // 4)
            if small < large:
                run(small)
            small_s: list[float] = []
            large_s: list[float] = []
            while len(large_s) < LEAST_TIMES or clock() < ends_at:
                small_s.append(run(small))  # in turns, so that a slow moment hits both
                large_s.append(run(large))
        finally:
            clear(engine.job.model.parameters())
    found = line(small, min(small_s), large, min(large_s))
    pairs = [sum(pair) for pair in zip(small_s, large_s, strict=True)]
    return scaled(found, stretch(pairs, found.step_s(small) + found.step_s(large), budget_s / WINDOW))


def stretch(seen_s: Sequence[float], predicted_s: float, block_s: float) -> float:
    """Return how many times as long as predicted the runs took: the median over blocks of ``block_s``.

    Within a block every stop counts: regular ones (a CPU quota) are part of the speed, a slow moment is not.
    """
    blocks = [Block(1)]
    for took_s in seen_s:
        if blocks[-1].longest_s >= block_s:
            blocks.append(Block(1))
        blocks[-1].add([took_s], [predicted_s])
    if len(blocks) > 1 and blocks[-1].longest_s < block_s / 2:
        blocks.pop()  # too short: by chance without a stop, or nothing but one
    return statistics.median(each.ratio(0, 1.0) for each in blocks)


def scaled(capacity: Capacity, ratio: float) -> Capacity:
    """Return the capacity of a node that takes ``ratio`` times as long."""
    return Capacity(capacity.fixed_s * ratio, capacity.per_unit_s * ratio, capacity.max_units)


def fit_memory(engine: Engine, free: int | None = None) -> None:
    """Bound the engine's micro-batches by what one forward of two samples keeps for backward.

    ``free``: bytes; None = as found, less what the optimizer and the exchange will still take. Leaves
    gradients; with granules nothing is bounded.
    """
    computer = engine.computer
    if engine.job.needs_granules:
        return
    samples = min(2, engine.timeline.position(0).samples)
    with Kept(computer.layout.parameters) as kept:
        computer.compute(engine.timeline.position(0), range(samples))
    device = computer.layout.parameters[0].device
    available = free_bytes(device) - footprint(engine.job).to_come if free is None else free
    computer.largest = micro_batch(kept.bytes / samples, available, MICRO_BATCH)


def line(small: int, small_s: float, large: int, large_s: float) -> Capacity:
    """Return the capacity through two measured points; noise never makes a part of it negative."""
    if large == small or large_s <= small_s:
        return Capacity(0.0, max(large_s / large, 1e-9))
    per_unit_s = min((large_s - small_s) / (large - small), large_s / large)
    return Capacity(max(0.0, large_s - per_unit_s * large), per_unit_s)


class Block:
    """Steps in a row, long enough together that their sum tells a speed.

    Attributes:
        steps: how many.
        longest_s: seconds of computing, each step's by the rank that took longest.
        whole_s: seconds of the steps from their begin to their commit; never less than ``longest_s``.
        seen_s, predicted_s: of each rank, summed over the steps in which it had a share.
    """

    def __init__(self, ranks: int) -> None:
        self.steps = 0
        self.longest_s = 0.0
        self.whole_s = 0.0
        self.seen_s = [0.0] * ranks
        self.predicted_s = [0.0] * ranks

    def add(self, seen_s: Sequence[float], predicted_s: Sequence[float], whole_s: float = 0.0) -> None:
        """Take in a step; a rank without a share, or one that tells no time, has predicted or seen 0."""
        self.steps += 1
        self.longest_s += max(seen_s)
        self.whole_s += max(whole_s, *seen_s)
        for rank, (seen, predicted) in enumerate(zip(seen_s, predicted_s, strict=True)):
            if seen > 0 and predicted > 0:
                self.seen_s[rank] += seen
                self.predicted_s[rank] += predicted

    def ratio(self, rank: int, last: float) -> float:
        """Return seen by predicted seconds; without any, the ``last`` ratio drifts back to 1."""
        if self.predicted_s[rank] > 0:
            return self.seen_s[rank] / self.predicted_s[rank]
        return 1.0 + (last - 1.0) * (1.0 - FORGIVING) ** self.steps


class Speeds:
    """A world's shares: from the plan's capacities at first, then from what the steps show. Pure.

    Every rank feeds it the same numbers (from the rider) and so computes the same shares. For each rank
    it keeps the ratio of seen to predicted seconds in blocks of `BLOCK_S`; the median of the last `WINDOW`
    scales its capacity.

    Shares are in proportion to speed until the steps show that the optimum ends them sooner by enough; then
    they are the optimum for as long as the world lives, so that the two rules never take turns.
    """

    def __init__(self, capacities: Sequence[Capacity]) -> None:
        self._measured = tuple(capacities)
        self._ratios = tuple(deque([1.0], maxlen=WINDOW) for _ in self._measured)
        self._accepted = [1.0] * len(self._measured)
        self._rule = proportional
        self._known: dict[int, tuple[int, ...]] = {}
        self._block = Block(len(self._measured))

    def shares(self, units: int) -> tuple[int, ...]:
        """Return the units of each rank, in rank order; they sum to ``units``."""
        if len(self._measured) == 1:
            return (units,)
        if units not in self._known:
            self._known[units] = self._rule(self._scaled(self._accepted), units)
        return self._known[units]

    def capacities(self) -> tuple[Capacity, ...]:
        """Return the capacities as the last steps show them."""
        return self._scaled(self._seen())

    def observe(self, shares: Sequence[int], compute_s: Sequence[float], whole_s: float = 0.0) -> None:
        """Take note of a committed step: who computed how much, in how many seconds of its own.

        ``whole_s``: what a step takes in all, waits and exchange included; 0 when not known yet.
        """
        if len(self._measured) == 1:
            return
        self._block.add(
            compute_s,
            [each.step_s(units) for each, units in zip(self._measured, shares, strict=True)],
            whole_s,
        )
        if self._block.longest_s >= BLOCK_S:
            for rank, ratios in enumerate(self._ratios):
                ratios.append(self._block.ratio(rank, ratios[-1]))
            whole_s = self._block.whole_s / self._block.steps
            self._block = Block(len(self._measured))
            self._consider(sum(shares), whole_s)

    def _consider(self, units: int, whole_s: float) -> None:
        seen = self._seen()
        costs = self._scaled(seen)
        if self._rule is proportional and optimum_gains(costs, units, whole_s):
            self._rule = optimum
            self._accept(seen, units, optimum(costs, units))
            return
        changes = [now / then for now, then in zip(seen, self._accepted, strict=True)]
        if max(changes) <= min(changes) * (1.0 + GAIN):
            return  # all alike: no other split can gain as much
        if self._rule is proportional:  # judged by what it divides by
            costs = amortised(costs, units)
        better = split(costs, units) if self._rule is proportional else optimum(costs, units)
        now_s = computing_s(costs, self.shares(units))
        if now_s - computing_s(costs, better) > GAIN * max(now_s, whole_s):
            self._accept(seen, units, better)

    def _accept(self, ratios: list[float], units: int, shares: tuple[int, ...]) -> None:
        self._accepted, self._known = ratios, {units: shares}

    def _seen(self) -> list[float]:
        return [statistics.median(ratios) for ratios in self._ratios]

    def _scaled(self, ratios: Sequence[float]) -> tuple[Capacity, ...]:
        return tuple(scaled(each, ratio) for each, ratio in zip(self._measured, ratios, strict=True))
