"""Units of work: what a share counts, and the pieces of a batch that are computed in one go. Pure.

Without granules a unit is one sample. With granules it is ``granule`` consecutive positions of the
global batch, so what batch norm and dropout see does not depend on who computes with whom.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive positions computed by one forward and one backward.

    Attributes:
        index: the granule's number within its batch; of a micro-batch, its number within the share.
        start, stop: positions, counted from the start of the batch.
    """

    index: int
    start: int
    stop: int

    @property
    def samples(self) -> int:
        """How many samples it has."""
        return self.stop - self.start


def count(samples: int, granule: int) -> int:
    """Return the number of granules in a batch of ``samples`` (>= 1)."""
    whole, rest = divmod(samples, granule)
    if rest == 0:
        return whole
    # A small rest would have poor batch statistics, and a single sample none.
    merges = 2 * rest < granule or rest == 1
    return max(1, whole if merges else whole + 1)


def pieces(samples: int, granule: int, units: range) -> tuple[Piece, ...]:
    """Return the granules ``units`` of a batch of ``samples``; the last one takes what is left."""
    total = count(samples, granule)
    return tuple(
        Piece(unit, unit * granule, samples if unit == total - 1 else (unit + 1) * granule) for unit in units
    )


def micro_batches(units: range, largest: int) -> tuple[Piece, ...]:
    """Return the samples ``units`` cut into the fewest pieces of at most ``largest``, even to one sample."""
    if not units:
        return ()
    parts = -(-len(units) // largest)
    bounds = [units.start + len(units) * part // parts for part in range(parts + 1)]
    return tuple(Piece(index, start, stop) for index, (start, stop) in enumerate(pairwise(bounds)))
