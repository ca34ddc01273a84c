"""What the training thread does now and for how long: how an agent tells slow from stuck."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from daisychain.core.reports import Phase


class PhaseClock:
    """Written by the training thread, read by the control thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # One tuple, replaced as a whole: a reader never sees a phase with another's start.
        self._now = (Phase.LOADING, clock(), 0.0)

    def enter(self, phase: Phase, predicted_s: float = 0.0) -> None:
        """Begin ``phase``; ``predicted_s``: what it should take, 0 when it has no bound of its own."""
        self._now = (phase, self._clock(), predicted_s)

    def read(self) -> tuple[Phase, float, float]:
        """Return (phase, seconds in it, predicted seconds)."""
        phase, since, predicted_s = self._now
        return phase, max(0.0, self._clock() - since), predicted_s

    def waiting(self) -> AbstractContextManager[None]:
        """Be EXCHANGING within: this rank waits for others. What it did before begins anew after it."""
        return self._within(Phase.EXCHANGING)

    def transferring(self) -> AbstractContextManager[None]:
        """Be TRANSFERRING within: a member's state is passed. What was done before begins anew after it."""
        return self._within(Phase.TRANSFERRING)

    @contextmanager
    def _within(self, inner: Phase) -> Iterator[None]:
        phase, _, predicted_s = self._now
        self._now = (inner, self._clock(), 0.0)
        try:
            yield
        finally:
            self._now = (phase, self._clock(), predicted_s)
