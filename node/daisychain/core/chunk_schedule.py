"""Which chunk of a bundle is asked of whom: a pure class, driven by whoever moves the bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from daisychain.core.effects import Source
from daisychain.core.ids import NodeId

Chunk = tuple[int, int]
"""File index and chunk index in a manifest."""


@dataclass(frozen=True, slots=True)
class ScheduleSettings:
    """How eagerly chunks are asked for.

    Attributes:
        in_flight_max: chunks asked for and not yet here: with CHUNK_BYTES bounds the memory of a fetch.
        in_flight_per_source: of one peer: the second travels while the first is written to disk.
        failures_max: a peer that failed so often in a row is asked no more in this fetch.
        back_off_s: pause of a peer after its first failure in a row; doubles with each further one.
    """

    in_flight_max: int = 8
    in_flight_per_source: int = 2
    failures_max: int = 5
    back_off_s: float = 0.5


@dataclass(slots=True)
class _Standing:
    """What one peer did in this fetch. ``barred``: it is asked no more; ``trouble``: the last that it did."""

    source: Source
    in_flight: int = 0
    failures: int = 0
    due_at: float = 0.0
    barred: bool = False
    trouble: str = ""


class ChunkSchedule:
    """The chunks that are still missing, and who is asked for which.

    Every chunk is asked of one peer at a time; what a peer fails to give goes back to the front of the
    queue, for whoever is free next.
    """

    def __init__(self, missing: Iterable[Chunk], settings: ScheduleSettings) -> None:
        self._settings = settings
        self._waiting = deque(missing)
        self._asked: dict[Chunk, NodeId] = {}
        self._standings: dict[NodeId, _Standing] = {}
        self._present: frozenset[NodeId] = frozenset()

    @property
    def done(self) -> bool:
        """Whether every chunk has arrived."""
        return not self._waiting and not self._asked

    @property
    def hopeless(self) -> bool:
        """Whether chunks are missing and nobody is left to be asked."""
        return not self.done and not self._asked and not self._usable()

    def offer(self, sources: Iterable[Source]) -> None:
        """These peers have the bundle now, and no others; what is asked of a former one is still taken."""
        sources = tuple(sources)
        self._present = frozenset(source.node_id for source in sources)
        for source in sources:
            standing = self._standings.setdefault(source.node_id, _Standing(source))
            standing.source = source

    def asks(self, now: float) -> list[tuple[Source, Chunk]]:
        """Return what to ask of whom now, and count it as asked: the least busy peers first."""
        settings, asks = self._settings, list[tuple[Source, Chunk]]()
        while self._waiting and len(self._asked) < settings.in_flight_max:
            free = [
                standing
                for standing in self._usable()
                if standing.in_flight < settings.in_flight_per_source and standing.due_at <= now
            ]
            if not free:
                break
            chosen = min(free, key=lambda standing: (standing.in_flight, standing.source.node_id))
            chunk = self._waiting.popleft()
            chosen.in_flight += 1
            self._asked[chunk] = chosen.source.node_id
            asks.append((chosen.source, chunk))
        return asks

    def arrived(self, chunk: Chunk) -> None:
        """A chunk is here and verified."""
        standing = self._answered(chunk)
        if standing is not None and not standing.barred:
            standing.failures, standing.trouble = 0, ""

    def failed(self, chunk: Chunk, reason: str, now: float) -> None:
        """A peer did not give the chunk: it is left alone for a while, in the end for good."""
        standing = self._answered(chunk)
        self._waiting.appendleft(chunk)
        if standing is not None:
            settings = self._settings
            standing.due_at = now + settings.back_off_s * 2.0 ** min(standing.failures, 16)
            standing.failures += 1
            standing.trouble = reason
            standing.barred = standing.barred or standing.failures >= settings.failures_max

    def lied(self, chunk: Chunk, reason: str) -> None:
        """A peer gave other bytes than the manifest's: nothing more is asked of it in this fetch."""
        standing = self._answered(chunk)
        self._waiting.appendleft(chunk)
        if standing is not None:
            standing.barred, standing.trouble = True, reason

    def deadline(self, now: float) -> float | None:
        """Return when a peer's pause ends and it may be asked again; None when there is no such."""
        waits = [standing.due_at for standing in self._usable() if standing.due_at > now]
        return min(waits, default=None)

    def troubles(self) -> str:
        """Return what each peer did wrong, by name: ``ada: ...; bob: ...``."""
        told = [standing for standing in self._standings.values() if standing.trouble]
        told.sort(key=lambda standing: (standing.source.name, standing.source.node_id))
        return "; ".join(f"{standing.source.name}: {standing.trouble}" for standing in told)

    def _usable(self) -> list[_Standing]:
        return [
            standing
            for node_id, standing in self._standings.items()
            if node_id in self._present and not standing.barred
        ]

    def _answered(self, chunk: Chunk) -> _Standing | None:
        """Take the chunk out of flight; return the standing of the peer that was asked for it."""
        node_id = self._asked.pop(chunk)
        standing = self._standings.get(node_id)
        if standing is not None:
            standing.in_flight -= 1
        return standing
