"""The values at given ranks of data that is walked several times: exact, in bounded memory.

Sixteen bits are settled a pass: a histogram of the leading ones tells in which range a rank lies, the next
pass looks only into that range. A range that holds few values is collected and sorted instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]

BITS = 16
FIRST_SHIFT = 64 - BITS

COLLECTED_MAX = 1 << 14
"""Most values of one range that are collected; more are counted in a histogram of 512 KiB."""

_TOP = np.uint64(1 << 63)


def keys_of(values: npt.NDArray[np.float64]) -> Keys:
    """Return integers that are in the order of ``values``, none of which is NaN."""
    bits = np.ascontiguousarray(values).view(np.uint64)
    return bits ^ ((bits.view(np.int64) >> 63).view(np.uint64) | _TOP)


def value_of(key: int) -> float:
    """Return the number whose key it is."""
    bits = key ^ (1 << 63) if key >> 63 else key ^ ((1 << 64) - 1)
    return float(np.array([bits], dtype=np.uint64).view(np.float64)[0])


@dataclass(slots=True)
class _Range:
    """What was seen in one range: the keys while they are few, a histogram of their next bits after that."""

    collected: list[Keys] | None = field(default_factory=list)
    count: int = 0
    histogram: npt.NDArray[np.int64] | None = None

    def add(self, keys: Keys, shift: int) -> None:
        self.count += len(keys)
        if self.collected is not None:
            self.collected.append(keys)
            if self.count <= COLLECTED_MAX:
                return
            keys, self.collected = np.concatenate(self.collected), None
            self.histogram = np.zeros(1 << BITS, dtype=np.int64)
        assert self.histogram is not None  # noqa: S101 - made when collecting ended
        digits = ((keys >> np.uint64(shift)) & np.uint64((1 << BITS) - 1)).astype(np.int64)
        self.histogram += np.bincount(digits, minlength=1 << BITS)


class RankSearch:
    """Show it all keys, end the pass, and again until it is done. The ranks are told when the first ends."""

    def __init__(self) -> None:
        self._shift = FIRST_SHIFT
        self._ranges: dict[int, _Range] = {0: _Range()}
        self._wanted: list[tuple[int, int]] = []  # the range of each rank, and the rank within it
        self._found: list[int | None] = []

    def show(self, keys: Keys) -> None:
        """Take the next keys of this pass."""
        for prefix, range_ in self._ranges.items():
            if self._shift == FIRST_SHIFT:
                range_.add(keys, self._shift)
            else:
                inside = (keys >> np.uint64(self._shift + BITS)) == np.uint64(prefix)
                range_.add(keys[inside], self._shift)

    def end_pass(self, ranks: Sequence[int]) -> bool:
        """Return whether the keys at ``ranks`` (from 0, the same in every pass) are found."""
        if self._shift == FIRST_SHIFT:
            self._wanted = [(0, rank) for rank in ranks]
            self._found = [None] * len(ranks)
        narrower: dict[int, _Range] = {}
        for index, (prefix, rank) in enumerate(self._wanted):
            if self._found[index] is not None:
                continue
            range_ = self._ranges[prefix]
            if range_.collected is not None:
                self._found[index] = int(np.sort(np.concatenate(range_.collected))[rank])
                continue
            assert range_.histogram is not None  # noqa: S101 - one of the two is there
            upto = np.cumsum(range_.histogram)
            digit = int(np.searchsorted(upto, rank, side="right"))
            inner = prefix << BITS | digit
            if self._shift == 0:
                self._found[index] = inner
                continue
            self._wanted[index] = (inner, rank - (int(upto[digit - 1]) if digit else 0))
            narrower[inner] = _Range()
        self._ranges, self._shift = narrower, self._shift - BITS
        return not narrower

    @property
    def found(self) -> tuple[int, ...]:
        """The keys at the ranks, once it is done."""
        return tuple(key for key in self._found if key is not None)
