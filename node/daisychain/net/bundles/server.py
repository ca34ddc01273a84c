"""Serving bundles: what a node that has proven itself may read of the jobs that this node holds."""

from __future__ import annotations

import asyncio
from typing import Protocol

from aiohttp import web

from daisychain.core.chunk_schedule import Chunk
from daisychain.errors import BundleError, ProtocolError
from daisychain.net.bundles.pace import Pace
from daisychain.net.bundles.paths import PREFIX, BundleKey, parse_path
from daisychain.net.bundles.settings import BundleSettings
from daisychain.net.links.handshake import REFUSAL_HEADER, close_reason
from daisychain.net.links.sockets import drop

STATUS_NOT_HERE = 404
STATUS_CHANGED = 410
STATUS_MALFORMED = 400


class Shelf(Protocol):
    """The bundles of this node; answers from what the jobs folder held when it was last looked at."""

    async def manifest(self, key: BundleKey) -> bytes | None:
        """Return the bundle's encoded manifest; None when it is not here."""

    async def chunk(self, key: BundleKey, chunk: Chunk) -> bytes | None:
        """Return one chunk; None when there is none. Raises `BundleError` when the file was changed."""


class BundleServer:
    """Answers requests for bundles; see `acceptor.Desk`.

    Whoever asks has proven a node id under the cluster's key, and its connections are counted by the
    acceptor. Nothing but the shelf's own bundles can be named.
    """

    def __init__(self, shelf: Shelf, settings: BundleSettings) -> None:
        self._shelf = shelf
        self._settings = settings
        self._turns = asyncio.Semaphore(settings.served_max)
        self.pace = Pace(settings.piece_bytes)
        self.chunks_served = 0
        self.buffer_bytes = settings.kernel_buffer_bytes

    def serves(self, path: str) -> bool:
        """Tell whether this is a request for a bundle."""
        return path.startswith(PREFIX)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the answer, sent; or a refusal to be sent."""
        try:
            key, chunk = parse_path(request.path)
        except ProtocolError as error:
            return _refusal(STATUS_MALFORMED, error.message)
        try:
            async with asyncio.timeout(self._settings.serve_timeout_s), self._turns:
                data = await (self._shelf.manifest(key) if chunk is None else self._shelf.chunk(key, chunk))
                if data is None:
                    return _refusal(STATUS_NOT_HERE, "this node does not have it")
                return await self._send(request, data, is_chunk=chunk is not None)
        except BundleError as error:
            return _refusal(STATUS_CHANGED, str(error))
        except TimeoutError:
            if request.transport is not None:
                drop(request.transport)  # a close would wait for the other side to read
            return _refusal(STATUS_NOT_HERE, "it took too long")

    async def _send(self, request: web.BaseRequest, data: bytes, *, is_chunk: bool) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_length = len(data)
        await response.prepare(request)
        piece_bytes = self._settings.piece_bytes
        for start in range(0, len(data), piece_bytes):
            piece = data[start : start + piece_bytes]
            await self.pace.take(len(piece))
            await response.write(piece)
        await response.write_eof()
        self.chunks_served += is_chunk
        return response


def _refusal(status: int, reason: str) -> web.Response:
    return web.Response(status=status, headers={REFUSAL_HEADER: close_reason(reason).decode()})
