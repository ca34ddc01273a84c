"""The control plane's transport: links to the peers, and events for the machine.

A node speaks only over links that it dialled, and hears only over links that were dialled to
it. Everything here runs on one asyncio loop; `dial`, `send` and `close_link` return at once and
what comes of them arrives as events, given to ``on_event`` on that loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from daisychain.core.events import CandidateSeen, DialFailed, InboundLost, LinkDown, LinkUp, Received
from daisychain.core.ids import Address, NodeId
from daisychain.core.messages import Message
from daisychain.core.node import NodeInfo
from daisychain.net.identity.certificates import Authority
from daisychain.net.identity.cluster_key import ClusterKey
from daisychain.net.identity.node_identity import NodeIdentity
from daisychain.net.links.acceptor import Acceptor, Desk
from daisychain.net.links.dialled import DialledLink
from daisychain.net.links.dialler import DialError, Dialler
from daisychain.net.links.refusals import RefusalLog
from daisychain.net.links.settings import TransportSettings
from daisychain.net.links.tasks import Tasks
from daisychain.net.links.tls import TlsContexts

__all__ = ["Transport", "TransportEvent", "TransportSettings"]

TransportEvent = CandidateSeen | DialFailed | LinkUp | LinkDown | Received | InboundLost


class Transport:
    """Every control connection of one node.

    Args:
        identity: who this node is.
        key: the cluster key that both ends of every link must prove.
        settings: the bounds.
        on_event: called on the loop with each event; must not block and must not raise.
        refusals: told of everything that was sent away.
        on_clone: called with what is known of another machine that has our node id, None when only
            a peer told of it; see `identity.gives_way`. May be called more than once.

    ``contexts`` are for whoever else dials the same nodes (`net/bundles`).
    """

    def __init__(
        self,
        identity: NodeIdentity,
        key: ClusterKey,
        settings: TransportSettings,
        on_event: Callable[[TransportEvent], None],
        *,
        refusals: RefusalLog,
        on_clone: Callable[[NodeInfo | None], None] = lambda _: None,
    ) -> None:
        self._node_id = identity.node_id
        self._settings = settings
        self._emit = on_event
        self._refusals = refusals
        self._on_clone = on_clone
        self.contexts = contexts = TlsContexts.make(identity, Authority.of(key))
        self._dialler = Dialler(self._node_id, key.cluster_id, contexts, settings, self.info)
        self._acceptor = Acceptor(self, contexts, settings, refusals)
        self._info: NodeInfo | None = None
        self._links: dict[NodeId, DialledLink] = {}
        self._tasks = Tasks()
        self._closed = False

    def have_answered(self, desk: Desk) -> None:
        """Have ``desk`` answer plain requests of nodes that have proven themselves; comes before `start`."""
        self._acceptor.desk = desk

    def set_info(self, info: NodeInfo) -> None:
        """Say this of us in every Hello from now on; must be called before any link can open."""
        if info.node_id != self._node_id:
            raise ValueError(f"info of {info.node_id} on the transport of {self._node_id}")
        self._info = info

    def info(self) -> NodeInfo:
        """Return what this node says of itself."""
        if self._info is None:
            raise RuntimeError("set_info comes before the first link")
        return self._info

    async def start(self, host: str, port: int) -> Address:
        """Listen on the numeric address ``host`` (port 0: a free one); return where.

        Raises `NetworkError`. Connections are accepted from now on, but only on the loop's next
        turn: `set_info` may still follow directly.
        """
        return self._acceptor.start(host, port)

    def dial(self, address: Address) -> None:
        """Open a link to ``address``: LinkUp or DialFailed follows within the dial timeout.

        A link to the same node that is already there is replaced, without a LinkDown.
        """
        if not self._closed:
            self._tasks.start(self._dial(address), f"dial {address}")

    def send(self, node_id: NodeId, message: Message) -> None:
        """Send over the link dialled to ``node_id``; dropped when there is none (see `Outbox`).

        Raises `ProtocolError` when the message is over the size limit.
        """
        link = self._links.get(node_id)
        if link is not None:
            link.send(message)

    def close_link(self, node_id: NodeId, reason: str) -> None:
        """Close the link dialled to ``node_id`` after what was sent before; no LinkDown follows."""
        link = self._links.pop(node_id, None)
        if link is not None:
            self._tasks.start(link.close(reason), f"close {node_id[:8]}")

    async def close(self, reason: str = "the node leaves") -> None:
        """Send what waits, say farewell, and drop everything; about one close timeout at most."""
        self._closed = True
        links = list(self._links.values())
        self._links.clear()
        await asyncio.gather(*(link.close(reason) for link in links))
        await self._acceptor.close(reason)
        await self._tasks.end()
        await self._dialler.close()

    async def _dial(self, address: Address) -> None:
        try:
            link = await self._dialler.open(address)
        except DialError as error:
            if self._closed:
                return
            if error.clone is not None or error.cloned:
                self._on_clone(error.clone)
            self._emit(DialFailed(address, error.refused, error.reason, error.ourselves))
            return
        if self._closed:
            await link.close("the node leaves")
            return
        node_id = link.info.node_id
        former = self._links.get(node_id)
        if former is not None:
            self._tasks.start(former.close("replaced by a newer link"), f"replace {node_id[:8]}")
        self._links[node_id] = link
        self._emit(LinkUp(link.info, address, link.local_host))
        end = await link.run()
        if end.refusal:
            self._refusals.refuse(address.host, end.reason)
        if self._links.get(node_id) is link:
            del self._links[node_id]
            self._emit(LinkDown(node_id, end.reset, end.reason))

    # What the acceptor asks and tells (acceptor.Household).

    def is_own_dial(self, nonce: bytes) -> bool:
        """Tell whether this node itself drew ``nonce``."""
        return self._dialler.is_own(nonce)

    def greeted(self, info: NodeInfo, remote_host: str) -> None:
        """A peer proved itself: a candidate to be dialled back, at the address it really has."""
        address = Address(remote_host, info.address.port)
        self._emit(CandidateSeen("inbound", address, info.node_id))

    def received(self, node_id: NodeId, message: Message) -> None:
        """A peer sent a message."""
        self._emit(Received(node_id, message))

    def lost(self, node_id: NodeId, *, reset: bool) -> None:
        """The link that a peer held to us ended."""
        if not self._closed:
            self._emit(InboundLost(node_id, reset))

    def met_clone(self, info: NodeInfo) -> None:
        """Another machine with our node id dialled us."""
        self._on_clone(info)
