"""The order of the samples, and who takes which part of a batch. Pure.

The order of an epoch is the stable ascending argsort of the first ``samples`` raw 64-bit outputs of
Philox4x64-10 with counter 0 and key (seed mod 2^64, epoch):

    numpy.argsort(numpy.random.Philox(key=[seed, epoch]).random_raw(samples), kind="stable")

Raw outputs are fixed by the algorithm, so any version of numpy, or another library, gives the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1


def order(seed: int, epoch: int, samples: int) -> NDArray[np.int64]:
    """Return the permutation of ``samples`` sample numbers in which ``epoch`` visits them."""
    key = np.array([seed & _MASK, epoch & _MASK], dtype=np.uint64)
    raw = np.random.Philox(key=key).random_raw(samples)
    return np.argsort(raw, kind="stable").astype(np.int64, copy=False)


def own_units(shares: Sequence[int], rank: int) -> range:
    """Return the units of a batch that ``rank`` takes: the shares follow one another in rank order."""
    start = sum(shares[:rank])
    return range(start, start + shares[rank])


def granule_seed(seed: int, step: int, granule: int) -> int:
    """Return the seed of the random numbers that one granule's forward draws: 63 bits.

    The first 8 bytes, little-endian, of BLAKE2b over ``"{seed}/{step}/{granule}"``, without the top bit.
    """
    digest = hashlib.blake2b(f"{seed}/{step}/{granule}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
