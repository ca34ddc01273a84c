"""The loop around the machine: one event in, its effects out, in order; timers; a bounded queue."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from daisychain.core.effects import Effect, Leave
from daisychain.core.events import CandidateSeen, Event, Received, TimerFired
from daisychain.host.clock import Clock


@dataclass(frozen=True, slots=True)
class DriverSettings:
    """Bounds of the loop.

    Attributes:
        queue_max: events waiting; beyond it what peers say is dropped (the next heartbeat repeats it), so
            that a flood cannot fill the memory. Events of our own are bounded by their sources.
        timer_least_s: least time between two timer events: a deadline that stands still cannot spin.
    """

    queue_max: int = 4096
    timer_least_s: float = 0.002


class Decider(Protocol):
    """The machine, as the loop sees it."""

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        """Take ``event`` in at ``now`` and return what to do."""

    def next_deadline(self) -> float | None:
        """Return when it wants TimerFired; None when it waits for nothing."""


class Performer(Protocol):
    """Performs effects."""

    async def perform(self, effect: Effect) -> None:
        """Do it; what must be durable is durable when this returns."""


class Driver:
    """Feeds events to the machine and performs its effects, one event at a time."""

    def __init__(
        self, machine: Decider, performer: Performer, clock: Clock, settings: DriverSettings
    ) -> None:
        self._machine = machine
        self._performer = performer
        self._clock = clock
        self._settings = settings
        self._queue: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self._left = ""
        self.shed = 0

    def post(self, event: Event) -> None:
        """Queue ``event``; what peers and discovery say is dropped while the queue is full."""
        if len(self._queue) >= self._settings.queue_max and isinstance(event, Received | CandidateSeen):
            self.shed += 1
            return
        self._queue.append(event)
        self._arrived.set()

    async def run(self) -> str:
        """Run until the machine says Leave; return its reason.

        An exception of the machine or of a durable effect (`StorageError`) ends the agent: going on without
        knowing one's own state is worse than a restart.
        """
        while not self._left:
            due = self._machine.next_deadline()
            wait_s = None if due is None else due - self._clock.monotonic()
            if not self._queue and (wait_s is None or wait_s > 0):
                await self._wait(wait_s)
            else:
                await asyncio.sleep(0)  # sockets are heard between any two rounds
            for _ in range(len(self._queue)):
                await self._step(self._queue.popleft())
                if self._left:
                    return self._left
            due = self._machine.next_deadline()
            if due is not None and due <= self._clock.monotonic():
                await self._step(TimerFired())
                again = self._machine.next_deadline()
                if again is not None and again <= self._clock.monotonic():
                    await asyncio.sleep(self._settings.timer_least_s)
        return self._left

    async def _wait(self, wait_s: float | None) -> None:
        self._arrived.clear()
        try:
            async with asyncio.timeout(wait_s):
                await self._arrived.wait()
        except TimeoutError:
            return

    async def _step(self, event: Event) -> None:
        for effect in self._machine.handle(event, self._clock.monotonic()):
            if isinstance(effect, Leave):
                self._left = effect.reason or "asked to leave"
                return
            await self._performer.perform(effect)
