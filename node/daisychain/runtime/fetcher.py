"""Fetches what the machine asks for, and tells it how that ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from daisychain.core.chunk_schedule import ScheduleSettings
from daisychain.core.effects import Fetch, Part
from daisychain.core.events import Event, Fetched, FetchFailed
from daisychain.core.ids import RunId
from daisychain.core.manifest import Manifest
from daisychain.errors import DaisyChainError, JobError
from daisychain.net.bundles.client import BundleClient
from daisychain.net.bundles.pace import Pace
from daisychain.net.bundles.paths import BundleKey
from daisychain.runtime.agent_status import FetchView
from daisychain.runtime.download import Download, Stage

log = logging.getLogger(__name__)

_Key = tuple[RunId, Part]


class Landing(Protocol):
    """Where what is fetched goes; every call may take time and runs in a thread."""

    def open_stage(self, order: Fetch, manifest: Manifest, in_use: frozenset[str]) -> Stage:
        """Return the stage of this bundle, with what it holds from before. Raises `DaisyChainError`.

        ``in_use``: digests of the jobs of which a run has not ended, and of whatever is being fetched.
        """

    def place(self, order: Fetch, stage: Stage) -> Path:
        """Put the whole bundle into its place at once; return where. Raises `DaisyChainError`."""


class Fetcher:
    """Every fetch that is under way: at most one a part, as the machine asks for them."""

    def __init__(
        self,
        client: BundleClient,
        paces: Sequence[Pace],
        landing: Landing,
        in_use: Callable[[], frozenset[str]],
        post: Callable[[Event], None],
    ) -> None:
        """``paces``: of both directions, the client's own among them. ``in_use``: see `Landing`."""
        self._in_use = in_use
        self._client = client
        self._paces = paces
        self._landing = landing
        self._post = post
        self._under_way: dict[_Key, tuple[Fetch, Download, asyncio.Task[None]]] = {}

    def fetch(self, order: Fetch) -> None:
        """Begin a fetch, or go on with it from these peers. Ends in one Fetched or FetchFailed."""
        key = (order.card.run_id, order.part)
        known = self._under_way.get(key)
        if known is not None:
            known[1].offer(order.sources)
            return
        download = Download(BundleKey(order.part, order.digest), self._client, ScheduleSettings())
        download.offer(order.sources)
        name = f"fetch {order.digest[:16]}"
        task = asyncio.get_running_loop().create_task(self._run(order, download), name=name)
        self._under_way[key] = (order, download, task)

    def drop(self, run_id: RunId, part: Part) -> None:
        """End a fetch; what is staged stays."""
        known = self._under_way.pop((run_id, part), None)
        if known is not None:
            known[2].cancel()

    def pace(self, bytes_per_s: float) -> None:
        """Move no more than so many bytes a second, in and out each; 0 = as many as there are."""
        for pace in self._paces:
            pace.set(bytes_per_s)

    def views(self) -> tuple[FetchView, ...]:
        """Return how far each fetch is."""
        return tuple(
            FetchView(
                name=order.card.name,
                part=order.part.value,
                done_bytes=download.done_bytes,
                size_bytes=download.size_bytes,
                sources=tuple(source.name for source in download.sources),
            )
            for order, download, _ in self._under_way.values()
        )

    async def close(self) -> None:
        """End every fetch and every connection."""
        tasks = [task for _, _, task in self._under_way.values()]
        self._under_way.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()

    async def _run(self, order: Fetch, download: Download) -> None:
        run_id, part = order.card.run_id, order.part
        under_way = (other.key.digest for _, other, _ in self._under_way.values())
        in_use = self._in_use() | {order.card.digest, *under_way}
        try:
            stage = await download.run(lambda manifest: self._landing.open_stage(order, manifest, in_use))
            placed = await asyncio.to_thread(self._landing.place, order, stage)
        except JobError as error:
            outcome: Event = FetchFailed(run_id, part, str(error).removeprefix(f"{error.where}: "))
        except DaisyChainError as error:
            outcome = FetchFailed(run_id, part, str(error))
        else:
            log.info("fetched %s (%d bytes)", placed, download.size_bytes)
            outcome = Fetched(run_id, part)
        if self._under_way.pop((run_id, part), None) is not None:
            self._post(outcome)
