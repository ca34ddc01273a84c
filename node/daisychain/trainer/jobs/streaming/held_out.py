"""Which rows of a table are held out: told for any range of rows, without a list of them all."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from daisychain.trainer.jobs.streaming.ranks import Keys, RankSearch

HASHED_ROWS = 1 << 18
"""Rows hashed at a time."""


class HeldOut:
    """``round(fraction * rows)`` rows, chosen by (seed, row) alone.

    At least one row stays in training, and one is held out when ``fraction`` is above 0 and there are
    two rows or more. The rows with the least hashes are taken (splitmix64's finaliser over
    seed and row number, which gives no two rows of one table the same).

    Attributes:
        rows: of the table.
        count: how many of them are held out.
    """

    def __init__(self, rows: int, fraction: float, seed: int) -> None:
        self.rows = rows
        self.count = min(rows - 1, max(1, round(fraction * rows))) if fraction > 0 and rows > 1 else 0
        self._seed = seed
        self._last = self._find_last() if self.count else 0

    def mask(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Return which of the rows ``start <= row < stop`` are held out."""
        if not self.count:
            return np.zeros(stop - start, dtype=np.bool_)
        return hashes(start, stop, self._seed) <= np.uint64(self._last)

    def training(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Return which of the rows ``start <= row < stop`` are trained on."""
        return ~self.mask(start, stop)

    def _find_last(self) -> int:
        """Return the largest hash of a row that is held out."""
        search = RankSearch()
        while True:
            for keys in self._hashes():
                search.show(keys)
            if search.end_pass((self.count - 1,)):
                return search.found[0]

    def _hashes(self) -> Iterator[Keys]:
        for start in range(0, self.rows, HASHED_ROWS):
            yield hashes(start, min(self.rows, start + HASHED_ROWS), self._seed)


def hashes(start: int, stop: int, seed: int) -> Keys:
    """Return the hashes of the rows ``start <= row < stop``."""
    golden, first, second = (
        np.uint64(0x9E3779B97F4A7C15),
        np.uint64(0xBF58476D1CE4E5B9),
        np.uint64(0x94D049BB133111EB),
    )

    def mixed(values: Keys) -> Keys:
        values = (values ^ (values >> np.uint64(30))) * first
        values = (values ^ (values >> np.uint64(27))) * second
        return values ^ (values >> np.uint64(31))

    begin = mixed(np.array([seed], dtype=np.uint64) + golden)
    return mixed(begin + np.arange(start + 1, stop + 1, dtype=np.uint64) * golden)
