"""The only readers of the time: monotonic seconds for decisions, Unix seconds for people."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What tells the time; tests bring their own."""

    def monotonic(self) -> float:
        """Seconds that only rise, from an arbitrary start."""

    def wall(self) -> float:
        """Unix seconds; may jump, and may be decades off on a machine with a dead battery."""


class SystemClock:
    """The machine's own clocks."""

    def monotonic(self) -> float:
        """Seconds that only rise, from an arbitrary start."""
        return time.monotonic()

    def wall(self) -> float:
        """Unix seconds; may jump, and may be decades off on a machine with a dead battery."""
        return time.time()
