"""Real gloo worlds of several ranks in this one process, formed as agents and coordinator would."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from daisychain.trainer.world.formation import Formation
from daisychain.trainer.world.group import FormedWorld, GroupSettings
from support.plans import plan

SETTINGS = GroupSettings(collective_s=5.0)


class Exchange:
    """Plays agents and coordinator: spreads the blobs once all have come."""

    def __init__(self, size: int) -> None:
        self.formations: list[Formation] = []
        self.blobs: dict[int, bytes] = {}
        self.size = size
        self._lock = threading.RLock()

    def publish(self, rank: int) -> Callable[[bytes], None]:
        def taken(blob: bytes) -> None:
            with self._lock:
                self.blobs[rank] = blob
                complete = len(self.blobs) == self.size
            if complete:
                self.spread()

        return taken

    def spread(self) -> None:
        blobs = tuple(self.blobs[rank] for rank in range(self.size))
        for formation in self.formations:
            formation.deliver(blobs)


def start(
    counter: int, size: int = 3, ranks: Sequence[int] | None = None, timeout_s: float = 10.0
) -> Exchange:
    """Start forming generation ``counter``; ``ranks`` other than all leaves the rest silent."""
    exchange = Exchange(size)
    world_plan = plan(range(size), counter)
    deadline_at = time.monotonic() + timeout_s
    with exchange._lock:  # nobody spreads before all are listed
        for rank in ranks if ranks is not None else range(size):
            publish = exchange.publish(rank)
            exchange.formations.append(Formation(world_plan, rank, deadline_at, publish, SETTINGS))
        for formation in exchange.formations:
            formation.start()
    return exchange


def form(counter: int, size: int = 3) -> list[FormedWorld]:
    return [formation.result() for formation in start(counter, size).formations]


@contextmanager
def formed(counter: int, size: int = 3) -> Iterator[list[FormedWorld]]:
    worlds = form(counter, size)
    try:
        yield worlds
    finally:
        for world in worlds:
            world.abort("the test is over")
        for world in worlds:
            world.close()
        for world in worlds:
            world.release()


def each(worlds: Sequence[FormedWorld], act: Callable[[FormedWorld], object]) -> list[Future[object]]:
    """Start ``act`` for every rank at once, in threads of their own."""
    pool = ThreadPoolExecutor(len(worlds))
    futures = [pool.submit(act, world) for world in worlds]
    pool.shutdown(wait=False)
    return futures
