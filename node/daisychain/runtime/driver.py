"""The loop around the machine: one event in, its effects out, in order; and its timers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from daisychain.core.effects import Effect, Leave
from daisychain.core.events import Event, TimerFired
from daisychain.host.clock import Clock
from daisychain.runtime.inbox import Inbox

TIMER_LEAST_S = 0.002
"""Least time between two timer events: a deadline that stands still cannot spin."""


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

    def __init__(self, machine: Decider, performer: Performer, inbox: Inbox, clock: Clock) -> None:
        self._machine = machine
        self._performer = performer
        self._inbox = inbox
        self._clock = clock
        self._left = ""

    async def run(self) -> str:
        """Run until the machine says Leave; return its reason.

        An exception of the machine or of a durable effect (`StorageError`) ends the agent: going on without
        knowing one's own state is worse than a restart.
        """
        while not self._left:
            due = self._machine.next_deadline()
            wait_s = None if due is None else due - self._clock.monotonic()
            if not self._inbox and (wait_s is None or wait_s > 0):
                await self._inbox.wait(wait_s)
            else:
                await asyncio.sleep(0)  # sockets are heard between any two rounds
            for _ in range(len(self._inbox)):
                await self._step(self._inbox.take())
                if self._left:
                    return self._left
            due = self._machine.next_deadline()
            if due is not None and due <= self._clock.monotonic():
                await self._step(TimerFired())
                again = self._machine.next_deadline()
                if again is not None and again <= self._clock.monotonic():
                    await asyncio.sleep(TIMER_LEAST_S)
        return self._left

    async def _step(self, event: Event) -> None:
        for effect in self._machine.handle(event, self._clock.monotonic()):
            if isinstance(effect, Leave):
                self._left = effect.reason or "asked to leave"
                return
            await self._performer.perform(effect)
