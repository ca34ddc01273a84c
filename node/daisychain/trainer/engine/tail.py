"""Exact sums that ride along with the gradient: weight, loss, samples, flags, used parameters.

Floats are summed as integers in units of 2^-80, each cut into three int64 limbs (2^0, 2^-40, 2^-80), so a
sum over pieces and ranks is exact and does not depend on their order. A float64 of magnitude 2^-27 or more
is represented without any rounding; a smaller one to 2^-80.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

_SHIFT = 40
_MASK = (1 << _SHIFT) - 1
_FRACTION = 2 * _SHIFT
LIMBS = 3
LARGEST = float(1 << 56)
"""Greater sums count as not finite: 64 ranks of them still fit an int64."""


@dataclass(slots=True)
class ExactSum:
    """A running sum of floats without rounding.

    Attributes:
        units: the sum in units of 2^-80.
        finite: no value was NaN, infinite or above `LARGEST`.
    """

    units: int = 0
    finite: bool = True

    def add(self, value: float) -> None:
        """Add ``value``; one that is not finite only clears ``finite``."""
        if not math.isfinite(value) or abs(value) > LARGEST:
            self.finite = False
        else:
            self.units += int(math.ldexp(value, _FRACTION))

    def limbs(self) -> tuple[int, int, int]:
        """Return the int64 limbs to be summed over the ranks."""
        return self.units >> _FRACTION, (self.units >> _SHIFT) & _MASK, self.units & _MASK


def value_of(limbs: Sequence[int]) -> float:
    """Return the float64 nearest to summed limbs."""
    units = (limbs[0] << _FRACTION) + (limbs[1] << _SHIFT) + limbs[2]
    return units / (1 << _FRACTION)


@dataclass(slots=True)
class Sums:
    """What one rank adds up while it computes its share.

    Attributes:
        used: for each parameter, whether backward reached it.
        out_of_range: a gradient did not fit its fixed-point exponent (reproducible mode).
        not_finite: a loss, weight or gradient was NaN or infinite.
    """

    used: list[bool]
    weight: ExactSum = field(default_factory=ExactSum)
    loss: ExactSum = field(default_factory=ExactSum)
    samples: int = 0
    out_of_range: bool = False
    not_finite: bool = False

    @property
    def broken(self) -> bool:
        """Whether this rank's own part has a number that is NaN or infinite."""
        return self.not_finite or not (self.weight.finite and self.loss.finite)

    def numbers(self) -> list[int]:
        """Return the int64s that the ranks sum."""
        return [
            *self.weight.limbs(),
            *self.loss.limbs(),
            self.samples,
            int(self.broken),
            int(self.out_of_range),
            *map(int, self.used),
        ]


@dataclass(frozen=True, slots=True)
class Tail:
    """The sums over all ranks: the same on each.

    ``used[i]``: some rank's backward reached parameter i. ``not_finite`` and ``out_of_range``: on some rank.
    """

    weight: float
    loss: float
    samples: int
    not_finite: bool
    out_of_range: bool
    used: tuple[bool, ...]

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Tail:
        """Return what the sums of every rank's `Sums.numbers` say."""
        return cls(
            weight=value_of(numbers[:3]),
            loss=value_of(numbers[3:6]),
            samples=numbers[6],
            not_finite=numbers[7] > 0,
            out_of_range=numbers[8] > 0,
            used=tuple(number > 0 for number in numbers[9:]),
        )
