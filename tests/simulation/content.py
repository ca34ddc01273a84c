"""What a simulated model holds: a digest of everything that went into it, in the order in which it did.

Two models are equal when their digests are; a step that some rank computed from other samples, or on top
of another model, leaves another digest for ever.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache

from daisychain.core.ids import RunId
from daisychain.core.shares import Capacity, amortised, split
from daisychain.core.world import WorldPlan

BATCH = 64
"""Samples of one step over the whole chain."""

Part = tuple[int, int]
"""The positions of a batch that one rank computes: the first, and the one after the last."""


def blank(run_id: RunId) -> str:
    """Return the content of a model that has not been trained yet."""
    return hashlib.blake2b(run_id.encode(), digest_size=8).hexdigest()


def part_of(plan: WorldPlan, rank: int) -> Part:
    """Return what a rank computes of each batch, by the plan that it was given."""
    shares = shares_of(tuple(member.capacity for member in plan.members))
    first = sum(shares[:rank])
    return first, first + shares[rank]


@lru_cache(maxsize=256)
def shares_of(capacities: tuple[Capacity, ...]) -> tuple[int, ...]:
    """Return how many samples of each batch each rank computes."""
    return split(amortised(capacities, BATCH), BATCH)


def following(content: str, step: int, parts: Iterable[Part]) -> str:
    """Return the content after one more step, to which the ranks contributed these parts."""
    whole = _joined(parts)
    text = f"{content} {step} {'all' if whole == [(0, BATCH)] else whole}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _joined(parts: Iterable[Part]) -> list[Part]:
    """Return the parts with neighbours joined: a batch that is covered once is one part."""
    joined: list[Part] = []
    for first, end in sorted(part for part in parts if part[0] != part[1]):
        if joined and joined[-1][1] == first:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((first, end))
    return joined


@lru_cache(maxsize=4096)
def alone(run_id: RunId, step: int) -> str:
    """Return the content that one process alone has after ``step`` steps."""
    if step == 0:
        return blank(run_id)
    return following(alone(run_id, step - 1), step, [(0, BATCH)])
