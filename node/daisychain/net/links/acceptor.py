"""Accepting: from a stranger's connection to an authenticated link on which a peer speaks."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import ssl
import time
from typing import Any, Protocol

from aiohttp import WebSocketError, WSMessage, WSMsgType, web

from daisychain.core.ids import Address, NodeId
from daisychain.core.messages import Hello, Message
from daisychain.core.node import NodeInfo
from daisychain.errors import ProtocolError
from daisychain.net.links.dialled import is_silence
from daisychain.net.links.framing import FRAME_MAX_BYTES, NONCE_BYTES, LinkSecrets, Opener, Sealer
from daisychain.net.links.guest import Guest, GuestProtocol
from daisychain.net.links.handshake import (
    PATH,
    REFUSAL_HEADER,
    STATUS_BUSY,
    STATUS_NO_HANDSHAKE,
    STATUS_OURSELVES,
    STATUS_WRONG_VERSION,
    CloseCode,
    close_reason,
    nonce_in,
    offer,
    version_clash,
)
from daisychain.net.links.limits import Gate, TokenBucket
from daisychain.net.links.refusals import RefusalLog, printable
from daisychain.net.links.settings import TransportSettings
from daisychain.net.links.sockets import give_way, listen, plain_host, tune
from daisychain.net.links.tasks import Tasks
from daisychain.net.links.tls import TlsContexts, proven_node_id
from daisychain.wire.codec import PEER_CODEC

_NO_SOCKETS_PAUSE_S = 0.2
"""Pause when the process is out of file descriptors: accepting again at once would spin."""


class Household(Protocol):
    """What the acceptor asks of, and tells, the node behind it."""

    def info(self) -> NodeInfo:
        """Return what this node says of itself."""

    def is_own_dial(self, nonce: bytes) -> bool:
        """Tell whether this node itself drew ``nonce``."""

    def greeted(self, info: NodeInfo, remote_host: str) -> None:
        """A peer proved itself and said Hello."""

    def received(self, node_id: NodeId, message: Message) -> None:
        """A peer sent a message."""

    def lost(self, node_id: NodeId, *, reset: bool) -> None:
        """The link that a peer held to us ended."""

    def met_clone(self, info: NodeInfo) -> None:
        """Another machine with our node id was met."""


class Desk(Protocol):
    """What answers plain requests of nodes that have proven themselves: the bundles (`net/bundles`)."""

    buffer_bytes: int

    def serves(self, path: str) -> bool:
        """Tell whether such a request is its affair."""

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the answer; bounded in time."""


class Refused(Exception):
    """A guest is sent away: ``code`` and the text go to it, the text to the refusal log."""

    def __init__(self, reason: str, code: CloseCode = CloseCode.REFUSED) -> None:
        super().__init__(reason)
        self.code = code


class Acceptor:
    """The listener and its guests."""

    def __init__(
        self,
        household: Household,
        contexts: TlsContexts,
        settings: TransportSettings,
        refusals: RefusalLog,
    ) -> None:
        self._household = household
        self.desk: Desk | None = None
        self._contexts = contexts
        self._settings = settings
        self._refusals = refusals
        self._gate = Gate(settings.gate)
        self._tasks = Tasks()
        self._listener: socket.socket | None = None
        self._server: web.Server | None = None
        self._guests: set[Guest] = set()
        self._peers: dict[NodeId, Guest] = {}

    @property
    def guests(self) -> int:
        """Connections past TLS, admitted or not."""
        return len(self._guests)

    def start(self, host: str, port: int) -> Address:
        """Listen on ``host``; return the address with the port taken. Raises `NetworkError`."""
        self._listener = listen(host, port, self._settings.listen_backlog)
        self._server = web.Server(self._request)
        name = self._listener.getsockname()
        self._tasks.start(self._accept(self._listener, self._server), "acceptor")
        return Address(host, int(name[1]))

    async def close(self, reason: str) -> None:
        """Say farewell to every peer and drop all connections; bounded by the close timeout."""
        await self._tasks.end()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        guests = list(self._guests)
        await asyncio.gather(*(self._farewell(guest, CloseCode.FAREWELL, reason) for guest in guests))
        if self._server is not None:
            await self._server.shutdown(self._settings.close_timeout_s)
            self._server = None
        await self._tasks.end()

    def _forget(self, guest: Guest) -> None:
        """The guest's connection is gone."""
        self._guests.discard(guest)

    async def _accept(self, listener: socket.socket, server: web.Server) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, name = await loop.sock_accept(listener)
            except ConnectionError:  # gone before we took it
                continue
            except OSError as error:
                self._refusals.refuse("connections", f"cannot accept ({error.strerror})")
                await asyncio.sleep(_NO_SOCKETS_PAUSE_S)
                continue
            guest = Guest(plain_host(name[0]), connection)
            why = self._gate.enter(guest.host, time.monotonic())
            if why is None:
                self._guests.add(guest)
                self._tasks.start(self._welcome(guest, server), "welcome")
            else:
                connection.close()
                self._refusals.refuse(guest.host, why)
            await asyncio.sleep(0)  # sock_accept does not yield while connections wait

    async def _welcome(self, guest: Guest, server: web.Server) -> None:
        """Take one connection through TLS to its Hello, or refuse it, within the bound."""
        loop = asyncio.get_running_loop()
        settings = self._settings
        try:
            async with asyncio.timeout(settings.hello_timeout_s):
                tune(guest.connection, settings.kernel_silence_s)
                await loop.connect_accepted_socket(
                    lambda: GuestProtocol(guest, server, self._forget),
                    guest.connection,
                    ssl=self._contexts.accept,
                    ssl_handshake_timeout=settings.tls_timeout_s,
                    ssl_shutdown_timeout=settings.close_timeout_s,
                )
                await guest.settled.wait()
        except TimeoutError:
            guest.refusal = guest.refusal or f"no Hello within {settings.hello_timeout_s:g} s"
        except OSError as error:
            guest.refusal = _handshake_failure(error)
        finally:
            self._gate.leave(guest.host)
            if guest.transport is None:  # no TLS: asyncio has dropped it, or never had it
                guest.abort()
                self._forget(guest)
        if not guest.admitted:
            self._refusals.refuse(guest.host, guest.refusal or "it left before it said Hello")
            if not guest.settled.is_set():
                guest.abort()

    async def _request(self, request: web.BaseRequest) -> web.StreamResponse:
        """Serve one HTTP request: a link's upgrade and its messages, or a refusal."""
        protocol = request.protocol
        assert isinstance(protocol, GuestProtocol)  # noqa: S101 - we made it
        guest = protocol.guest
        if self.desk is not None and request.method == "GET" and self.desk.serves(request.path):
            return await self._call(guest, request, self.desk)
        if guest.caller is not None:  # it was let in as a caller, which needs no Hello in time
            return _no(guest, STATUS_NO_HANDSHAKE, "a link on a connection that asked for bundles")
        try:
            node_id = proven_node_id(request.get_extra_info("ssl_object"))
            nonce = nonce_in(request.headers)
            clash = version_clash(request.headers)
            if request.path != PATH or request.method != "GET":
                raise ProtocolError(f"no DaisyChain handshake ({request.method} {request.path})")
        except ProtocolError as error:
            return _no(guest, STATUS_NO_HANDSHAKE, error.message)
        if clash:
            return _no(guest, STATUS_WRONG_VERSION, clash)
        if self._household.is_own_dial(nonce):
            guest.admitted = True  # nobody to be told of
            return _no(guest, STATUS_OURSELVES, "this is this node itself")
        websocket = web.WebSocketResponse(
            autoping=False,
            autoclose=False,
            compress=False,
            max_msg_size=FRAME_MAX_BYTES + 1,
            timeout=self._settings.close_timeout_s,
        )
        mine = secrets.token_bytes(NONCE_BYTES)
        websocket.headers.update(offer(mine))
        try:
            await websocket.prepare(request)
        except web.HTTPException as error:
            return _no(guest, STATUS_NO_HANDSHAKE, f"no DaisyChain handshake ({error.text})")
        guest.websocket = websocket
        ends = LinkSecrets(node_id, self._household.info().node_id, nonce, mine)
        await self._serve(guest, websocket, ends)
        return websocket

    async def _call(self, guest: Guest, request: web.BaseRequest, desk: Desk) -> web.StreamResponse:
        """Have the desk answer a node that has proven itself; it becomes no peer by that."""
        try:
            node_id = proven_node_id(request.get_extra_info("ssl_object"))
        except ProtocolError as error:
            return _no(guest, STATUS_NO_HANDSHAKE, error.message)
        clash = version_clash(request.headers)
        if clash:
            return _no(guest, STATUS_WRONG_VERSION, clash)
        if guest.caller is None:
            callers = [other.caller for other in self._guests if other.caller is not None]
            if len(callers) >= self._settings.callers_max:
                return _no(guest, STATUS_BUSY, f"{len(callers)} connections ask for bundles already")
            if callers.count(node_id) >= self._settings.callers_per_node:
                return _no(guest, STATUS_BUSY, f"{callers.count(node_id)} connections of it ask already")
            guest.caller, guest.admitted = node_id, True
            guest.settled.set()
            give_way(guest.connection, desk.buffer_bytes)
        return await desk.answer(request)

    async def _serve(self, guest: Guest, websocket: web.WebSocketResponse, ends: LinkSecrets) -> None:
        """Take the peer's Hello and then its messages, until the link ends."""
        opener = Opener(ends.tag(from_dialler=True))
        try:
            greeting = _frame(await websocket.receive())
            if greeting is None:
                return
            hello = PEER_CODEC.decode(opener.open(greeting))
            if not isinstance(hello, Hello):
                raise ProtocolError(f"a link that begins with a {type(hello).__name__} instead of a Hello")
            self._admit(guest, hello.info, ends.dialler)
            reply = PEER_CODEC.encode(Hello(self._household.info()))
            await websocket.send_bytes(Sealer(ends.tag(from_dialler=False)).seal(reply))
            if ends.dialler == ends.acceptor:
                self._household.met_clone(hello.info)
                return
            self._household.greeted(hello.info, guest.host)
            await self._listen_to(ends.dialler, websocket, opener)
        except (ProtocolError, Refused) as error:
            code = error.code if isinstance(error, Refused) else CloseCode.REFUSED
            guest.refusal = str(error)
            if guest.admitted:  # else _welcome tells it
                self._refusals.refuse(guest.host, guest.refusal)
            await self._farewell(guest, code, guest.refusal)
        except OSError:
            pass  # lost while we answered: told below, or by _welcome
        finally:
            guest.settled.set()
            if guest.node_id is not None and self._peers.get(guest.node_id) is guest:
                del self._peers[guest.node_id]
                self._household.lost(guest.node_id, reset=not guest.refusal and not is_silence(guest.error))

    def _admit(self, guest: Guest, info: NodeInfo, node_id: NodeId) -> None:
        """Make the guest a peer; raises `ProtocolError` or `Refused` when it is not to be one."""
        if info.node_id != node_id:
            raise ProtocolError(
                f"a node that proved to be {node_id} calls itself {printable(info.node_id, 32)}"
            )
        if node_id != self._household.info().node_id:  # else a clone: it gets our Hello and no more
            former = self._peers.get(node_id)
            if former is None and len(self._peers) >= self._settings.inbound_max:
                raise Refused(f"{self._settings.inbound_max} peers are linked to this node already")
            if former is not None and former.machine_id != info.machine_id:
                raise Refused(
                    "another machine with this node id is linked: one state folder is a copy of the other",
                    CloseCode.CLONED,
                )
            guest.node_id, guest.machine_id = node_id, info.machine_id
            self._peers[node_id] = guest
            if former is not None:  # it dialled anew: the former link is of no use to it
                self._tasks.start(
                    self._farewell(former, CloseCode.REPLACED, "replaced by a newer link"), "farewell"
                )
        guest.admitted = True
        guest.settled.set()

    async def _listen_to(self, node_id: NodeId, websocket: web.WebSocketResponse, opener: Opener) -> None:
        """Hand on the peer's messages, no faster than the rate; return when the link has ended."""
        settings, now = self._settings, time.monotonic()
        messages = TokenBucket(settings.messages_per_s, settings.messages_burst, now)
        sizes = TokenBucket(settings.bytes_per_s, settings.bytes_burst, now)
        while True:
            frame = _frame(await websocket.receive())
            if frame is None:
                return
            message = PEER_CODEC.decode(opener.open(frame))
            if isinstance(message, Hello):
                raise ProtocolError("a second Hello on one link")
            if self._peers.get(node_id) is None or self._peers[node_id].websocket is not websocket:
                return  # replaced
            self._household.received(node_id, message)
            now = time.monotonic()
            wait_s = max(messages.take(1.0, now), sizes.take(len(frame), now))
            if wait_s > 0.0:
                await asyncio.sleep(wait_s)

    async def _farewell(self, guest: Guest, code: CloseCode, reason: str) -> None:
        """Close a guest's link with a reason if it has one, and drop its connection; never raises."""
        if guest.websocket is not None:
            with contextlib.suppress(TimeoutError, OSError, RuntimeError):
                async with asyncio.timeout(self._settings.close_timeout_s):
                    await guest.websocket.close(code=code, message=close_reason(reason))
        guest.abort()


def _frame(message: WSMessage | Any) -> bytes | None:
    """Return the frame in a websocket message, None at the link's end; raises `ProtocolError`."""
    match message.type:
        case WSMsgType.BINARY:
            return bytes(message.data)
        case WSMsgType.CLOSE | WSMsgType.CLOSED | WSMsgType.CLOSING:
            return None
        case WSMsgType.ERROR if isinstance(message.data, WebSocketError):
            raise ProtocolError(f"bytes that are no frame ({message.data})")
        case WSMsgType.ERROR:
            return None
        case _:
            raise ProtocolError(f"a websocket {message.type.name} message, which no node sends")


def _no(guest: Guest, status: int, reason: str) -> web.Response:
    """Return the refusal of an upgrade, and note it on the guest."""
    guest.refusal = reason
    guest.settled.set()
    said = close_reason(reason).decode()
    response = web.Response(status=status, headers={**offer(bytes(NONCE_BYTES)), REFUSAL_HEADER: said})
    response.force_close()
    return response


def _handshake_failure(error: OSError) -> str:
    """Return in words why a TLS handshake failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"a certificate that does not hold under this cluster's key ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return {
            "HTTP_REQUEST": "plain HTTP on the control port",
            "PEER_DID_NOT_RETURN_A_CERTIFICATE": "no certificate",
        }.get(error.reason or "", f"no TLS handshake of a node ({error.reason or error})")
    if isinstance(error, ConnectionAbortedError):
        return "no finished TLS handshake in time"
    return "it left during the TLS handshake (a node of another cluster, or a port scan)"
