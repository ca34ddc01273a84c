"""Sources of candidates run in tests: what they found and what they said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from daisychain.core.events import CandidateSeen
from daisychain.core.ids import Address
from daisychain.net.discovery.sources import Source, SourceHealth


@dataclass
class Heard:
    """What one source told so far."""

    candidates: list[CandidateSeen] = field(default_factory=list)
    said: list[tuple[SourceHealth, str]] = field(default_factory=list)

    @property
    def addresses(self) -> set[Address]:
        return {candidate.address for candidate in self.candidates}

    @property
    def last(self) -> str:
        return self.said[-1][1] if self.said else ""

    def count(self, address: Address) -> int:
        return sum(candidate.address == address for candidate in self.candidates)


@asynccontextmanager
async def running(source: Source) -> AsyncIterator[Heard]:
    """Run a source while the block lasts; what it raises by itself is raised at the block's end."""
    heard = Heard()
    task = asyncio.create_task(
        source.run(heard.candidates.append, lambda health, text: heard.said.append((health, text)))
    )
    try:
        yield heard
    finally:
        if not task.done():
            task.cancel()
        with suppress(asyncio.CancelledError):
            await task
