"""One bundle on its way here: asked for in chunks, verified, staged; what is staged is asked for once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Protocol

from daisychain.core.chunk_schedule import Chunk, ChunkSchedule, ScheduleSettings
from daisychain.core.effects import Source
from daisychain.core.manifest import Manifest
from daisychain.errors import BundleError, ProtocolError
from daisychain.net.bundles.client import AskError, BundleClient
from daisychain.net.bundles.paths import BundleKey
from daisychain.wire.manifests import MANIFEST_MAX_BYTES, decode_manifest


class Stage(Protocol):
    """Where the chunks of one bundle are put; see `host.bundles.staging`."""

    def missing(self) -> tuple[Chunk, ...]:
        """Return the chunks that are not there, verified."""

    def put(self, file: int, chunk: int, data: bytes) -> None:
        """Verify and keep one chunk; raises `BundleError` (other bytes) or `StorageError`."""


class Download:
    """Fetches one bundle from the peers that have it, several at a time.

    Attributes:
        key: which bundle.
        done_bytes, size_bytes: how far it is; 0 of 0 until it is known what there is and what is staged.
    """

    def __init__(self, key: BundleKey, client: BundleClient, settings: ScheduleSettings) -> None:
        self.key = key
        self._client = client
        self._settings = settings
        self._sources: tuple[Source, ...] = ()
        self._changed = asyncio.Event()
        self.done_bytes = 0
        self.size_bytes = 0

    @property
    def sources(self) -> tuple[Source, ...]:
        """The peers that have it, as last told."""
        return self._sources

    def offer(self, sources: tuple[Source, ...]) -> None:
        """These peers have it now."""
        self._sources = sources
        self._changed.set()

    async def run(self, open_stage: Callable[[Manifest], Stage]) -> Stage:
        """Return the stage with every chunk on it.

        Raises `BundleError` with what each peer did wrong, or when the bundle may not be; `StorageError`
        when this disk cannot hold it.
        """
        manifest = await self._manifest()
        stage = await asyncio.to_thread(open_stage, manifest)
        missing = await asyncio.to_thread(stage.missing)
        left_bytes = sum(manifest.chunk_size(*chunk) for chunk in missing)
        self.done_bytes, self.size_bytes = manifest.size_bytes - left_bytes, manifest.size_bytes
        await self._chunks(manifest, stage, missing)
        return stage

    async def _manifest(self) -> Manifest:
        """Return the manifest that has the digest, from the first peer that gives it."""
        troubles: list[str] = []
        for source in self._sources:
            try:
                data = await self._client.manifest(source, self.key, MANIFEST_MAX_BYTES)
                manifest, digest = await asyncio.to_thread(_decoded, data)
                if digest != self.key.digest:
                    raise AskError("it gave the manifest of another bundle", lied=True)
                return manifest
            except (AskError, BundleError, ProtocolError) as error:
                troubles.append(f"{source.name}: {error}")
        raise BundleError(self.key.digest, "; ".join(troubles) or "nobody has it")

    async def _chunks(self, manifest: Manifest, stage: Stage, missing: tuple[Chunk, ...]) -> None:
        schedule = ChunkSchedule(missing, self._settings)
        asking: dict[asyncio.Task[bytes], Chunk] = {}
        told = asyncio.ensure_future(self._changed.wait())
        try:
            while not schedule.done:
                schedule.offer(self.sources)
                for source, chunk in schedule.asks(time.monotonic()):
                    ask = self._client.chunk(source, self.key, chunk, manifest.chunk_size(*chunk))
                    asking[asyncio.ensure_future(ask)] = chunk
                if schedule.hopeless:
                    raise BundleError(self.key.digest, schedule.troubles() or "nobody has it any more")
                due = schedule.deadline(time.monotonic())
                wait_s = None if due is None else max(0.0, due - time.monotonic())
                await asyncio.wait({*asking, told}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                if told.done():
                    self._changed.clear()
                    told = asyncio.ensure_future(self._changed.wait())
                for task in [task for task in asking if task.done()]:
                    await self._take(schedule, stage, asking.pop(task), task)
        finally:
            for left in (*asking, told):
                left.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*asking, told, return_exceptions=True)

    async def _take(
        self, schedule: ChunkSchedule, stage: Stage, chunk: Chunk, task: asyncio.Task[bytes]
    ) -> None:
        """Stage what a peer gave, or say what it did instead."""
        try:
            data = task.result()
        except AskError as error:
            if error.lied:
                schedule.lied(chunk, error.reason)
            else:
                schedule.failed(chunk, error.reason, time.monotonic())
            return
        try:
            await asyncio.to_thread(stage.put, *chunk, data)
        except BundleError:
            schedule.lied(chunk, "it gave other bytes than those of the bundle")
            return
        schedule.arrived(chunk)
        self.done_bytes += len(data)


def _decoded(data: bytes) -> tuple[Manifest, str]:
    """Return a manifest, checked, and its digest; raises `ProtocolError` or `BundleError`."""
    manifest = decode_manifest(data)
    return manifest, manifest.digest
