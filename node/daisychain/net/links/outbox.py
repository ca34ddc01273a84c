"""What waits to be sent to one peer: bounded, and honest about what it drops."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from daisychain.core.messages import Heartbeat, HeartbeatAck, Message


@dataclass(frozen=True, slots=True)
class _Waiting:
    data: bytes
    renewed: bool
    """The next heartbeat says it again, so it is the first to go when the queue is full."""


class Outbox:
    """A queue for one peer that reads slower than we speak.

    When it is full, the oldest heartbeat or acknowledgement goes first: a later one says the same
    and more. Without one, the oldest message goes: of the messages that form a world, the newest
    generation is the one that counts, and a formation that lacks one fails at its deadline and is
    tried anew. A message larger than the whole queue is sent alone.
    """

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._queue: deque[_Waiting] = deque()
        self._bytes = 0
        self._finished = False
        self._changed = asyncio.Event()
        self.dropped = 0
        """Messages dropped so far."""

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def bytes_waiting(self) -> int:
        """Bytes in the queue."""
        return self._bytes

    def put(self, message: Message, data: bytes) -> None:
        """Queue ``message``, encoded as ``data``; ignored after `finish`."""
        if self._finished:
            self.dropped += 1
            return
        self._queue.append(_Waiting(data, isinstance(message, Heartbeat | HeartbeatAck)))
        self._bytes += len(data)
        while len(self._queue) > 1 and (
            len(self._queue) > self._max_messages or self._bytes > self._max_bytes
        ):
            self._drop_one()
        self._changed.set()

    async def next(self) -> bytes | None:
        """Return the next message's bytes; None once `finish` was called and all were taken."""
        while not self._queue:
            if self._finished:
                return None
            self._changed.clear()
            await self._changed.wait()
        waiting = self._queue.popleft()
        self._bytes -= len(waiting.data)
        return waiting.data

    def finish(self) -> None:
        """Take no more messages; what waits may still be sent."""
        self._finished = True
        self._changed.set()

    def _drop_one(self) -> None:
        """Drop the oldest that will be said again, or the oldest; never the one just put."""
        candidates = range(len(self._queue) - 1)
        index = next((i for i in candidates if self._queue[i].renewed), 0)
        self._bytes -= len(self._queue[index].data)
        del self._queue[index]
        self.dropped += 1
