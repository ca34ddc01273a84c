"""Asking a peer for bundles, over connections of their own: no heartbeat ever waits behind a chunk."""

from __future__ import annotations

import socket

import aiohttp
from aiohttp.client_reqrep import ClientResponse
from aiohttp.connector import Connection
from yarl import URL

from daisychain.core.chunk_schedule import Chunk
from daisychain.core.effects import Source
from daisychain.core.ids import NodeId
from daisychain.errors import ProtocolError
from daisychain.net.bundles.pace import Pace
from daisychain.net.bundles.paths import BundleKey, chunk_path, manifest_path
from daisychain.net.bundles.settings import BundleSettings
from daisychain.net.links.handshake import REFUSAL_HEADER, WIRE_HEADER
from daisychain.net.links.refusals import printable
from daisychain.net.links.sockets import give_way, tune
from daisychain.net.links.tls import TlsContexts, proven_node_id
from daisychain.wire.codec import WIRE_VERSION


class AskError(Exception):
    """A peer did not give what it was asked for; the text says why, without the peer's name.

    ``lied``: it gave what no honest node gives, so asking it again is of no use.
    """

    def __init__(self, reason: str, *, lied: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.lied = lied


class BundleClient:
    """Asks peers; every answer is bounded in size and time, and comes from the very node that was asked."""

    def __init__(self, contexts: TlsContexts, settings: BundleSettings, kernel_silence_s: int) -> None:
        """``kernel_silence_s``: see `TransportSettings`; of every connection of this node."""
        self._kernel_silence_s = kernel_silence_s
        self._contexts = contexts
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None
        self.pace = Pace(settings.piece_bytes)

    async def manifest(self, source: Source, key: BundleKey, max_bytes: int) -> bytes:
        """Return the bundle's manifest, not yet looked at; raises `AskError`."""
        return await self._get(source, manifest_path(key), max_bytes)

    async def chunk(self, source: Source, key: BundleKey, chunk: Chunk, size_bytes: int) -> bytes:
        """Return one chunk of exactly ``size_bytes``, not yet verified; raises `AskError`."""
        data = await self._get(source, chunk_path(key, chunk), size_bytes)
        if len(data) != size_bytes:
            raise AskError(f"it gave {len(data)} bytes of a chunk of {size_bytes}", lied=True)
        return data

    async def close(self) -> None:
        """Drop every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _get(self, source: Source, path: str, max_bytes: int) -> bytes:
        url = URL.build(scheme="https", host=source.address.host, port=source.address.port, path=path)
        try:
            async with self._connected().get(
                url, ssl=self._contexts.dial, headers={WIRE_HEADER: str(WIRE_VERSION)}, allow_redirects=False
            ) as response:
                assert isinstance(response, ProvenResponse)  # noqa: S101 - the session's own response class
                if response.node_id != source.node_id:
                    raise AskError("another node answered at its address")
                if response.status != 200:
                    said = response.headers.get(REFUSAL_HEADER, f"HTTP status {response.status}")
                    raise AskError(printable(said))
                if response.content_length is None or response.content_length > max_bytes:
                    raise AskError(
                        f"it would give {response.content_length} bytes, not {max_bytes}", lied=True
                    )
                data = bytearray()
                async for piece in response.content.iter_chunked(self._settings.piece_bytes):
                    data += piece
                    await self.pace.take(len(piece))
                return bytes(data)
        except TimeoutError:
            raise AskError("it did not answer in time") from None
        except ProtocolError as error:
            raise AskError(error.message) from None
        except (aiohttp.ClientError, OSError) as error:
            raise AskError(
                f"the connection failed ({printable(str(error) or type(error).__name__)})"
            ) from None

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            settings = self._settings
            connector = aiohttp.TCPConnector(
                limit=0,  # what is in flight is bounded by the schedule
                use_dns_cache=False,
                keepalive_timeout=settings.idle_s,
                socket_factory=self._socket,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                response_class=ProvenResponse,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(
                    total=settings.answer_timeout_s,
                    sock_connect=settings.connect_timeout_s,
                    sock_read=settings.silence_s,
                ),
                read_bufsize=settings.piece_bytes,
            )
        return self._session

    def _socket(self, info: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, _ = info
        connection = socket.socket(family, kind, protocol)
        tune(connection, self._kernel_silence_s)
        give_way(connection, self._settings.kernel_buffer_bytes)
        return connection


class ProvenResponse(ClientResponse):
    """A response that knows which node gave it: the connection may be gone before the answer is read."""

    node_id: NodeId | None = None

    async def start(self, connection: Connection) -> ClientResponse:
        """Read the head of the answer; raises `ProtocolError` when no node id was proven."""
        transport = connection.transport
        self.node_id = proven_node_id(None if transport is None else transport.get_extra_info("ssl_object"))
        return await super().start(connection)
