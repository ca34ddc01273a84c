"""A link that this node dialled: the only kind that it speaks on."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import ClientWebSocketResponse, WSMsgType

from daisychain.core.ids import Address
from daisychain.core.messages import Message
from daisychain.core.node import NodeInfo
from daisychain.net.links.framing import Sealer
from daisychain.net.links.handshake import CloseCode, close_reason
from daisychain.net.links.outbox import Outbox
from daisychain.net.links.refusals import printable
from daisychain.net.links.settings import TransportSettings
from daisychain.net.links.sockets import drop
from daisychain.wire.codec import PEER_CODEC


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """How a link ended. ``refusal``: the peer broke the protocol, so it was we who ended it (no reset)."""

    reset: bool
    reason: str
    refusal: bool = False


class DialSocket(ClientWebSocketResponse):
    """A websocket that keeps hold of its connection, to tell how it was lost and to drop it at once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        response: aiohttp.ClientResponse = args[3]
        connection = response.connection
        assert connection is not None  # noqa: S101 - it has just carried the upgrade
        protocol = connection.protocol
        assert protocol is not None  # noqa: S101 - likewise
        self.response = response
        self.connection = connection.transport
        self.lost: asyncio.Future[None] | None = protocol.closed
        if self.lost is not None:
            self.lost.add_done_callback(_retrieve)

    def abort(self) -> None:
        """Drop the connection without a farewell."""
        if self.connection is not None:
            drop(self.connection)
        self.response.close()  # so that the session forgets it

    def timed_out(self) -> bool:
        """Tell whether the kernel gave the connection up because nobody answered."""
        if self.lost is None or not self.lost.done() or self.lost.cancelled():
            return False
        error = self.lost.exception()
        return error is not None and is_silence(error.__cause__)


class DialledLink:
    """One open link to a peer; made by the dialler, run by the transport."""

    def __init__(
        self,
        socket: DialSocket,
        info: NodeInfo,
        address: Address,
        sealer: Sealer,
        settings: TransportSettings,
    ) -> None:
        self.info = info
        self.address = address
        self.local_host = str(socket.get_extra_info("sockname")[0])
        self._socket = socket
        self._sealer = sealer
        self._close_timeout_s = settings.close_timeout_s
        self._outbox = Outbox(settings.queue_messages, settings.queue_bytes)
        self._writer: asyncio.Task[None] | None = None
        self._closing = False

    def send(self, message: Message) -> None:
        """Queue ``message``; raises `ProtocolError` when it is too large to be sent at all."""
        self._outbox.put(message, PEER_CODEC.encode(message))

    async def run(self) -> LinkEnd:
        """Send what is queued until the link ends; return how it did."""
        self._writer = asyncio.get_running_loop().create_task(self._write(), name="link writer")
        try:
            return await self._watch()
        finally:
            self._writer.cancel()
            await asyncio.wait({self._writer})
            if not self._closing:  # else `close` waits for the peer to have read it all
                self._socket.abort()

    async def close(self, reason: str) -> None:
        """Send what waits and a farewell, then end the link; bounded, and never raises."""
        self._closing = True
        self._outbox.finish()
        with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):
            async with asyncio.timeout(self._close_timeout_s):
                if self._writer is not None:
                    await asyncio.wait({self._writer})
                await self._socket.close(code=CloseCode.FAREWELL, message=close_reason(reason))
        self._socket.abort()

    async def _write(self) -> None:
        with contextlib.suppress(aiohttp.ClientError, OSError):  # _watch sees the loss and tells it
            while (data := await self._outbox.next()) is not None:
                await self._socket.send_bytes(self._sealer.seal(data))

    async def _watch(self) -> LinkEnd:
        """Wait for the end; the peer has nothing to say here."""
        message = await self._socket.receive()
        match message.type:
            case WSMsgType.CLOSE:
                with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):
                    async with asyncio.timeout(self._close_timeout_s):
                        await self._socket.close()
                said = printable(str(message.extra or "no reason given"))
                return LinkEnd(reset=True, reason=f"the peer closed the link: {said}")
            case WSMsgType.CLOSED | WSMsgType.CLOSING:
                if self._socket.timed_out():
                    return LinkEnd(reset=False, reason="the peer's machine stopped answering")
                return LinkEnd(reset=True, reason="the connection was reset")
            case WSMsgType.ERROR:
                if isinstance(message.data, aiohttp.WebSocketError):
                    return LinkEnd(
                        reset=False, reason=f"bytes that are no websocket: {message.data}", refusal=True
                    )
                return LinkEnd(reset=not self._socket.timed_out(), reason=f"connection lost: {message.data}")
            case _:
                return LinkEnd(
                    reset=False,
                    reason="it spoke on a link on which only this node speaks",
                    refusal=True,
                )


def is_silence(error: BaseException | None) -> bool:
    """Tell a connection that the kernel gave up for silence from one that was reset."""
    return isinstance(error, OSError) and error.errno in (
        errno.ETIMEDOUT,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
    )


def _retrieve(future: asyncio.Future[None]) -> None:
    """Look at the exception, so that asyncio does not call it unseen."""
    if not future.cancelled():
        future.exception()
