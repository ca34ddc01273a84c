"""What an encoding learns from a table's columns, in as few walks over its blocks as that takes.

Every result is exact (a correctly rounded sum, a count, a value of a given rank), so it depends on
the rows alone: not on the blocks, the machine, or whether the table is in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from daisychain.trainer.jobs.streaming.blocks import Blocks, Floats
from daisychain.trainer.jobs.streaming.exact_sums import ExactSum
from daisychain.trainer.jobs.streaming.ranks import RankSearch, keys_of, value_of

Training = Callable[[int, int], npt.NDArray[np.bool_]]
"""(start, stop) -> which of these rows are trained on."""

COLUMNS_AT_ONCE = 128
"""Columns of numbers looked at in one walk: bounds the memory (a histogram each)."""


@dataclass(frozen=True, slots=True)
class NumberFacts:
    """A column of numbers in the training rows.

    Attributes:
        present, missing: rows with a value, and without.
        mean, scale: of the values; the standard deviation (of the population), 0 when all are alike.
        median: the mean of the two in the middle when there are two.
    """

    present: int
    missing: int
    mean: float
    scale: float
    median: float


@dataclass(frozen=True, slots=True)
class TextFacts:
    """A column of text: rows by code, of the training rows and of all; and the rows without a value.

    Attributes:
        training, everywhere: one count for each of the column's values.
        missing: training rows without one.
    """

    training: npt.NDArray[np.int64]
    everywhere: npt.NDArray[np.int64]
    missing: int


class _Number:
    """One column of numbers over several walks: sum and first ranks, then squares, then the other ranks."""

    def __init__(self) -> None:
        self._walk = 0
        self._sum = ExactSum()
        self._ranks: RankSearch | None = RankSearch()
        self._first = math.nan
        self._alike = True
        self.present = 0
        self.missing = 0
        self.mean = self.scale = self.median = 0.0

    def add(self, values: Floats) -> None:
        """Take the column's training rows of the next block."""
        gone = np.isnan(values)
        if gone.any():
            values = values[~gone]
        if self._walk == 0:
            self.missing += int(gone.sum())
            self.present += len(values)
        if len(values) == 0:
            return
        if self._walk == 0:
            if math.isnan(self._first):
                self._first = float(values[0])
            self._alike = self._alike and bool((values == self._first).all())
            self._sum.add(values)
        elif self._walk == 1:
            self._sum.add((values - self.mean) ** 2)
        if self._ranks is not None:
            self._ranks.show(keys_of(values))

    def end_walk(self) -> bool:
        """Return whether all is known."""
        if self._walk == 0:
            if self.present == 0 or self._alike:
                self.mean = self.median = self._first if self.present else 0.0
                return True
            self.mean = self._sum.value / self.present
        elif self._walk == 1:
            self.scale = math.sqrt(self._sum.value / self.present)
        self._sum, self._walk = ExactSum(), self._walk + 1
        if self._ranks is not None and self._ranks.end_pass(((self.present - 1) // 2, self.present // 2)):
            low, high = (value_of(key) for key in self._ranks.found)
            self.median = float(np.mean([low, high]))
            self._ranks = None
        return self._walk > 1 and self._ranks is None

    def facts(self) -> NumberFacts:
        """Return what was found."""
        return NumberFacts(self.present, self.missing, self.mean, self.scale, self.median)


def number_facts(blocks: Blocks, names: Sequence[str], training: Training) -> dict[str, NumberFacts]:
    """Return the facts of the number columns ``names``."""
    found: dict[str, NumberFacts] = {}
    for start in range(0, len(names), COLUMNS_AT_ONCE):
        columns = {name: _Number() for name in names[start : start + COLUMNS_AT_ONCE]}
        open_ones = dict(columns)
        while open_ones:
            for row, block in blocks.walk(open_ones):
                chosen = training(row, row + len(next(iter(block.values()))))
                for name, column in open_ones.items():
                    column.add(block[name][chosen].astype(np.float64, copy=False))
            open_ones = {name: column for name, column in open_ones.items() if not column.end_walk()}
        found |= {name: column.facts() for name, column in columns.items()}
    return found


def text_facts(blocks: Blocks, sizes: Mapping[str, int], training: Training) -> dict[str, TextFacts]:
    """Return the facts of text columns; ``sizes``: how many values each has."""
    if not sizes:
        return {}
    every = {name: np.zeros(size + 1, dtype=np.int64) for name, size in sizes.items()}
    trained = {name: np.zeros(size + 1, dtype=np.int64) for name, size in sizes.items()}
    for row, block in blocks.walk(sizes):
        chosen = training(row, row + len(next(iter(block.values()))))
        for name, size in sizes.items():
            codes = block[name] + 1
            every[name] += np.bincount(codes, minlength=size + 1)
            trained[name] += np.bincount(codes[chosen], minlength=size + 1)
    return {name: TextFacts(trained[name][1:], every[name][1:], int(trained[name][0])) for name in sizes}
