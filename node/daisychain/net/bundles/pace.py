"""How fast bundles move in one direction: as fast as it goes, or at a rate that may change any time."""

from __future__ import annotations

import asyncio
import time

from daisychain.net.links.limits import TokenBucket

LOOK_S = 0.25
"""Whoever waits for a turn notices a changed rate within so much."""


class Pace:
    """One direction's rate, shared by all that moves in it."""

    def __init__(self, piece_bytes: int) -> None:
        self._piece_bytes = piece_bytes
        self._bucket: TokenBucket | None = None

    def set(self, bytes_per_s: float) -> None:
        """Let so many bytes a second pass from now on; 0 = as many as there are."""
        burst = float(self._piece_bytes)
        now = time.monotonic()
        self._bucket = TokenBucket(bytes_per_s, burst, now) if bytes_per_s > 0 else None

    async def take(self, count: int) -> None:
        """Return when ``count`` bytes may pass: in the order of asking."""
        bucket = self._bucket
        if bucket is None:
            return
        wait_s = bucket.take(float(count), time.monotonic())
        while wait_s > 0 and self._bucket is bucket:
            nap_s = min(wait_s, LOOK_S)
            await asyncio.sleep(nap_s)
            wait_s -= nap_s
