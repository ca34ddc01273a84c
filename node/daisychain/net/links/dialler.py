"""Dialling: from an address to an authenticated link, or to a reason why not."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import ssl
from collections.abc import Callable

import aiohttp
from aiohttp import WSMsgType
from yarl import URL

from daisychain.core.ids import Address, ClusterId, NodeId
from daisychain.core.messages import Hello
from daisychain.core.node import NodeInfo
from daisychain.errors import ProtocolError
from daisychain.net.identity.certificates import cluster_id_in
from daisychain.net.identity.cluster_key import join_line
from daisychain.net.links.dialled import DialledLink, DialSocket
from daisychain.net.links.framing import FRAME_MAX_BYTES, NONCE_BYTES, LinkSecrets, Opener, Sealer
from daisychain.net.links.handshake import (
    PATH,
    REFUSAL_HEADER,
    STATUS_OURSELVES,
    CloseCode,
    nonce_in,
    offer,
    version_clash,
)
from daisychain.net.links.refusals import printable
from daisychain.net.links.settings import TransportSettings
from daisychain.net.links.sockets import drop, tune
from daisychain.net.links.tls import TlsContexts, proven_node_id
from daisychain.wire.codec import PEER_CODEC


class DialError(Exception):
    """A dial ended without a link; becomes a DialFailed event.

    Attributes:
        reason: for people, and what a stranger is shown with.
        refused: nobody listens there.
        ourselves: it is this very node.
        clone: another machine with our node id answered; what it said of itself, if it said so.
        cloned: a peer says that another machine holds our node id.
    """

    def __init__(
        self,
        reason: str,
        *,
        refused: bool = False,
        ourselves: bool = False,
        clone: NodeInfo | None = None,
        cloned: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.refused = refused
        self.ourselves = ourselves
        self.clone = clone
        self.cloned = cloned


class Dialler:
    """Opens links; knows its own dials in flight, to recognise itself at the other end."""

    def __init__(
        self,
        node_id: NodeId,
        cluster_id: ClusterId,
        contexts: TlsContexts,
        settings: TransportSettings,
        info: Callable[[], NodeInfo],
    ) -> None:
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._contexts = contexts
        self._settings = settings
        self._info = info
        self._nonces: set[bytes] = set()
        self._session: aiohttp.ClientSession | None = None

    def is_own(self, nonce: bytes) -> bool:
        """Tell whether a nonce that arrived at our own listener is that of our own dial."""
        return nonce in self._nonces

    async def open(self, address: Address) -> DialledLink:
        """Return an open link to the node at ``address``; raises `DialError`, within the bound."""
        if len(self._nonces) >= self._settings.dials_max:
            raise DialError(f"{self._settings.dials_max} dials are already in flight")
        nonce = secrets.token_bytes(NONCE_BYTES)
        self._nonces.add(nonce)
        try:
            async with asyncio.timeout(self._settings.dial_timeout_s):
                try:
                    return await self._open(address, nonce)
                except aiohttp.ClientConnectorCertificateError as error:
                    raise await self._stranger(address, error.certificate_error) from None
        except TimeoutError as error:
            connecting = isinstance(error, aiohttp.ConnectionTimeoutError)
            bound_s = self._settings.connect_timeout_s if connecting else self._settings.dial_timeout_s
            raise DialError(f"no answer within {bound_s:g} s") from None
        except ProtocolError as error:
            raise DialError(error.message) from None
        except (aiohttp.ClientError, OSError) as error:
            raise _explained(error) from None
        finally:
            self._nonces.discard(nonce)

    async def close(self) -> None:
        """Drop the connections that are left."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _open(self, address: Address, nonce: bytes) -> DialledLink:
        websocket = await self._connected().ws_connect(
            URL.build(scheme="https", host=address.host, port=address.port, path=PATH),
            headers=offer(nonce),
            ssl=self._contexts.dial,
            autoclose=False,
            autoping=False,
            compress=0,
            max_msg_size=FRAME_MAX_BYTES + 1,
            timeout=aiohttp.ClientWSTimeout(ws_close=self._settings.close_timeout_s),
        )
        assert isinstance(websocket, DialSocket)  # noqa: S101 - the session's own response class
        try:
            clash = version_clash(websocket.response.headers)
            if clash:
                raise DialError(clash)
            node_id = proven_node_id(websocket.get_extra_info("ssl_object"))
            ends = LinkSecrets(self._node_id, node_id, nonce, nonce_in(websocket.response.headers))
            sealer = Sealer(ends.tag(from_dialler=True))
            await websocket.send_bytes(sealer.seal(PEER_CODEC.encode(Hello(self._info()))))
            info = await self._greeting(websocket, Opener(ends.tag(from_dialler=False)), node_id)
            return DialledLink(websocket, info, address, sealer, self._settings)
        except BaseException:
            websocket.abort()
            raise

    async def _greeting(self, websocket: DialSocket, opener: Opener, node_id: NodeId) -> NodeInfo:
        """Return what the node that proved ``node_id`` says of itself."""
        message = await websocket.receive()
        if message.type is WSMsgType.CLOSE:
            said = printable(str(message.extra or "no reason given"))
            raise DialError(f"it refused this node: {said}", cloned=message.data == CloseCode.CLONED)
        if message.type is not WSMsgType.BINARY:
            raise DialError("it closed the connection before it said Hello")
        hello = PEER_CODEC.decode(opener.open(message.data))
        if not isinstance(hello, Hello):
            raise ProtocolError(f"it began with a {type(hello).__name__} instead of a Hello")
        if hello.info.node_id != node_id:
            raise ProtocolError(
                f"it calls itself {printable(hello.info.node_id, 32)} but proved to be {node_id}"
            )
        if node_id == self._node_id:
            raise DialError(
                f"{printable(hello.info.name, 40)} has this node's id: its state folder is a copy",
                clone=hello.info,
            )
        return hello.info

    async def _stranger(self, address: Address, error: Exception) -> DialError:
        """Return why the node at ``address`` was refused, with the cluster that it claims."""
        claimed: ClusterId | None = None
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(
                address.host, address.port, ssl=self._contexts.inspect, server_hostname=""
            )
            tls: ssl.SSLObject | None = writer.get_extra_info("ssl_object")
            drop(writer.transport)
            der = tls.getpeercert(binary_form=True) if tls is not None else None
            claimed = cluster_id_in(der) if der else None
        if claimed == self._cluster_id:
            said = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else str(error)
            return DialError(f"its certificate names this cluster but does not hold under its key ({said})")
        return DialError(join_line(claimed, self._cluster_id))

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=0, force_close=True, use_dns_cache=False, socket_factory=self._socket
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                ws_response_class=DialSocket,
                middlewares=(_only_upgrades,),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._settings.connect_timeout_s),
            )
        return self._session

    def _socket(self, info: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, _ = info
        connection = socket.socket(family, kind, protocol)
        tune(connection, self._settings.kernel_silence_s)
        return connection


async def _only_upgrades(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Take an upgrade or nothing: no redirect is followed and no request repeated."""
    try:
        response = await handler(request)
    except aiohttp.ServerDisconnectedError:
        raise DialError("it closed the connection instead of answering") from None
    if response.status == 101:
        return response
    response.close()
    if response.status == STATUS_OURSELVES:
        raise DialError("this is this node itself", ourselves=True)
    clash = version_clash(response.headers)
    if clash:
        raise DialError(clash)
    said = printable(response.headers.get(REFUSAL_HEADER, f"HTTP status {response.status}"))
    raise DialError(f"it refused this node: {said}")


def _explained(error: aiohttp.ClientError | OSError) -> DialError:
    """Return a failed connection in words."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, ConnectionRefusedError):
        return DialError("nobody listens there", refused=True)
    if isinstance(cause, ssl.SSLError) or isinstance(error, aiohttp.ClientConnectorSSLError):
        return DialError(f"it does not speak TLS as a DaisyChain node does ({printable(str(cause))})")
    if isinstance(cause, OSError) and cause.strerror:
        return DialError(printable(cause.strerror))
    return DialError(f"the connection failed ({printable(str(error) or type(error).__name__)})")
