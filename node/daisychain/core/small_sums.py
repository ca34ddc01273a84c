"""Which sums of a step go to every rank in one hop instead of round a ring: see docs/decisions/0026."""

from __future__ import annotations

SENT_MAX_BYTES = 16 << 10
"""Most that a rank sends for one sum: 0.13 ms at 1 Gbit/s and 13 ms at 10 Mbit/s. From here on it counts that
a ring sends fewer bytes, at most twice the tensor."""


def in_one_hop(sum_bytes: float, world_size: int) -> bool:
    """Whether a tensor of ``sum_bytes`` is sent to all of ``world_size`` ranks; alike on every rank."""
    return sum_bytes * (world_size - 1) <= SENT_MAX_BYTES
