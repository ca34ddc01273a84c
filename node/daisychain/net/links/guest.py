"""A connection that somebody made to us, and aiohttp's server protocol that serves it."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from aiohttp import web

from daisychain.core.ids import NodeId
from daisychain.net.links.sockets import drop

# A logger of its own, outside the tree: every refusal is told by the refusal log, once.
_SILENT = logging.Logger("daisychain.http", level=logging.CRITICAL + 1)


IDLE_S = 15.0
"""A connection on which bundles were asked for is dropped when nothing was asked for so long."""


class Guest:
    """One accepted connection, from its TCP handshake to its end."""

    def __init__(self, host: str, connection: socket.socket) -> None:
        self.host = host
        self.connection = connection
        self.node_id: NodeId | None = None
        self.caller: NodeId | None = None  # the node that asks for bundles on it, and holds no link
        self.machine_id = ""
        self.websocket: web.WebSocketResponse | None = None
        self.transport: asyncio.Transport | None = None
        self.settled = asyncio.Event()  # admitted, refused or gone
        self.admitted = False
        self.refusal = ""
        self.error: BaseException | None = None

    def abort(self) -> None:
        """Drop the connection at once."""
        if self.transport is not None:
            drop(self.transport)
        else:
            self.connection.close()


class GuestProtocol(web.RequestHandler):
    """aiohttp's own server protocol that also tells its guest what happens to the connection."""

    __slots__ = ("_forget", "guest")

    def __init__(self, guest: Guest, server: web.Server, forget: Callable[[Guest], None]) -> None:
        # Header limits far below aiohttp's: an honest upgrade is under 500 bytes.
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            logger=_SILENT,
            access_log=None,  # type: ignore[arg-type] # aiohttp's own way to switch it off
            max_line_size=1024,
            max_field_size=1024,
            max_headers=32,
            lingering_time=0.0,
            keepalive_timeout=IDLE_S,
            tcp_keepalive=False,
        )
        self.guest = guest
        self._forget = forget

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """TLS is through: HTTP begins."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - TCP under TLS
        self.guest.transport = transport
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is gone; ``exc`` says how, None for an orderly end."""
        self.guest.error = exc
        self.guest.settled.set()
        self._forget(self.guest)
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Refuse what is no HTTP, or no request that we serve."""
        self.guest.refusal = f"no DaisyChain handshake ({message or exc or status})"
        self.guest.settled.set()
        response = web.Response(status=status)
        response.force_close()
        return response
