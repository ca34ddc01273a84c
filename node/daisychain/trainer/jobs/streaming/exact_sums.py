"""Sums that are correctly rounded, whatever the order and the pieces in which the numbers come.

The result is that of `math.fsum` to the bit; arrays are split into parts whose sums numpy cannot round
(Rump, Ogita and Oishi: Accurate floating-point summation, 2008), which is some five times as fast.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

FEW = 256
"""So many numbers or fewer are handed to `math.fsum` as they are."""

PARTS_MAX = 4096
"""Parts held before they are summed up: bounds the memory, whatever the length of the data."""


class ExactSum:
    """The exact sum of all that was added; finite numbers below 1e290, whose sums stay in range."""

    def __init__(self) -> None:
        self._parts: list[float] = []

    def add(self, values: npt.NDArray[np.float64]) -> None:
        """Add an array of one dimension."""
        if len(values) <= FEW:
            self._parts += values.tolist()
        else:
            self._parts += _parts(values)
        if len(self._parts) > PARTS_MAX:
            self._parts = _collapsed(self._parts)

    @property
    def value(self) -> float:
        """The sum, rounded once."""
        return math.fsum(self._parts)


def _parts(values: npt.NDArray[np.float64]) -> list[float]:
    """Return few numbers whose exact sum is that of ``values``.

    Each turn takes the leading bits of every value, so few that a sum of them all fits 53 bits.
    """
    parts = []
    spare = (len(values) + 2).bit_length()
    while (largest := float(np.abs(values).max())) > 0:
        sigma = math.ldexp(1.0, math.frexp(largest)[1] + spare)
        leading = (values + sigma) - sigma
        parts.append(float(leading.sum()))
        values = values - leading
    return parts


def _collapsed(parts: list[float]) -> list[float]:
    """Return fewer numbers with the same exact sum: the rounded sum, then what it lacks, and so on."""
    rest, few = list(parts), []
    while (total := math.fsum(rest)) != 0:
        few.append(total)
        rest.append(-total)
    return few
