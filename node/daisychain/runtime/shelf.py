"""What this node may give to others: the jobs and results that its folder held when last looked at."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from daisychain.core.chunk_schedule import Chunk
from daisychain.core.manifest import Manifest
from daisychain.host.bundles.reading import BundlePlace, read_chunk
from daisychain.net.bundles.paths import BundleKey
from daisychain.wire.manifests import encode_manifest

OPEN_MAX = 4
"""Manifests held in memory: of the largest bundles 8 MiB each."""


@dataclass(frozen=True, slots=True)
class _Open:
    place: BundlePlace
    manifest: Manifest
    encoded: bytes


class JobShelf:
    """Gives bundles chunk by chunk; see `net.bundles.server.Shelf`."""

    def __init__(
        self, find: Callable[[BundleKey], BundlePlace | None], read: Callable[[BundleKey], Manifest]
    ) -> None:
        """``find`` tells at once where a bundle lies, None when it is not here; ``read`` its manifest.

        ``read`` may look at the files, and raises `BundleError` when they have changed.
        """
        self._find = find
        self._read = read
        self._open: OrderedDict[BundleKey, _Open] = OrderedDict()
        self._lock = asyncio.Lock()

    async def manifest(self, key: BundleKey) -> bytes | None:
        """Return the bundle's encoded manifest; None when it is not here. Raises `BundleError`."""
        opened = await self._opened(key)
        return None if opened is None else opened.encoded

    async def chunk(self, key: BundleKey, chunk: Chunk) -> bytes | None:
        """Return one chunk; None when there is none. Raises `BundleError` when the file was changed."""
        opened = await self._opened(key)
        if opened is None:
            return None
        files = opened.manifest.files
        file, index = chunk
        if file >= len(files) or index >= len(files[file].chunks):
            return None
        return await asyncio.to_thread(read_chunk, opened.place, opened.manifest, file, index)

    async def _opened(self, key: BundleKey) -> _Open | None:
        place = self._find(key)
        if place is None:
            self._open.pop(key, None)
            return None
        async with self._lock:  # many ask at once; its files are looked at by one
            opened = self._open.get(key)
            if opened is None or opened.place != place:
                manifest = await asyncio.to_thread(self._read, key)
                opened = _Open(place, manifest, await asyncio.to_thread(encode_manifest, manifest))
                self._open[key] = opened
                while len(self._open) > OPEN_MAX:
                    self._open.popitem(last=False)
            self._open.move_to_end(key)
            return opened
