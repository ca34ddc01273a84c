"""Simulated time: a queue of what happens when, and the one random source."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable

from simulation.story import Story, Violation


class Timeline:
    """Runs callbacks in the order of their time; equal times in the order in which they were planned."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now = 0.0
        self.random = random.Random(seed)
        self.story = Story()
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Plan ``what`` for ``when``."""
        heapq.heappush(self._queue, (max(when, self.now), next(self._order), what))

    def after(self, delay_s: float, what: Callable[[], None]) -> None:
        """Plan ``what`` in ``delay_s`` seconds."""
        self.at(self.now + delay_s, what)

    def tell(self, line: str) -> None:
        """Add to the story."""
        self.story.add(self.now, line)

    def fail(self, what: str) -> None:
        """End the simulation: a promise was broken."""
        raise Violation(f"seed {self.seed} at {self.now:.4f} s: {what}\n{self.story.text()}")

    def run(self, until: float, done: Callable[[], bool] = lambda: False) -> bool:
        """Run up to ``until``, or until ``done()``; return whether it was done."""
        queue = self._queue
        while queue and queue[0][0] <= until:
            self.now, _, what = heapq.heappop(queue)
            what()
            if done():
                return True
        self.now = max(self.now, until)
        return done()
