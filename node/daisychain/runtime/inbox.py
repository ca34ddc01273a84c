"""The events that wait for the machine: everybody posts, the driver takes; bounded."""

from __future__ import annotations

import asyncio
from collections import deque

from daisychain.core.events import CandidateSeen, Event, Received

QUEUE_MAX = 4096
"""Events waiting; beyond it what peers say is dropped (the next heartbeat repeats it), so that a flood cannot
fill the memory. Events of our own are bounded by their sources."""


class Inbox:
    """The queue between everything that happens and the machine.

    Attributes:
        shed: messages of peers, and addresses of discovery, dropped because the queue was full.
    """

    def __init__(self, queue_max: int = QUEUE_MAX) -> None:
        self._queue_max = queue_max
        self._queue: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self.shed = 0

    def __len__(self) -> int:
        return len(self._queue)

    def post(self, event: Event) -> None:
        """Queue ``event``; what peers and discovery say is dropped while the queue is full."""
        if len(self._queue) >= self._queue_max and isinstance(event, Received | CandidateSeen):
            self.shed += 1
            return
        self._queue.append(event)
        self._arrived.set()

    def take(self) -> Event:
        """Return the oldest event. Raises `IndexError` when there is none."""
        return self._queue.popleft()

    async def wait(self, timeout_s: float | None) -> None:
        """Return when an event is there, or ``timeout_s`` has passed; None = no bound of time."""
        if self._queue:
            return
        self._arrived.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._arrived.wait()
        except TimeoutError:
            return
