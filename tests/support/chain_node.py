"""A node's transport as a test drives it: real TLS, real sockets on loopback, events kept in a list."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from daisychain.core.events import DialFailed, InboundLost, LinkDown, LinkUp, Received
from daisychain.core.ids import Address, NodeId, Term
from daisychain.core.messages import Heartbeat, Message
from daisychain.core.node import NodeInfo, NodeStatus, TrainerStatus
from daisychain.net.identity.cluster_key import ClusterKey
from daisychain.net.identity.node_identity import NodeIdentity
from daisychain.net.links.refusals import RefusalLog
from daisychain.net.links.transport import Transport, TransportEvent, TransportSettings
from support.async_waiting import until_async

LOOPBACK = "127.0.0.1"
EVENT_DEADLINE_S = 10.0

E = TypeVar("E")


def node_info(node_id: NodeId, name: str, port: int = 1) -> NodeInfo:
    return NodeInfo(
        node_id=node_id,
        name=name,
        incarnation=1,
        machine_id=f"machine of {name}",
        address=Address(LOOPBACK, port),
        version="0.1.0",
        torch_version="2.13.0+cpu",
        platform="linux",
        cores=2,
        memory_bytes=1 << 30,
        device="cpu",
    )


def heartbeat(seq: int, node_id: NodeId) -> Heartbeat:
    status = NodeStatus(
        incarnation=1,
        term=Term(1, node_id),
        leading=False,
        reachable=(node_id,),
        jobs=(),
        trainer=TrainerStatus(),
    )
    return Heartbeat(seq, status)


class ChainNode:
    """One transport, started on a free loopback port."""

    def __init__(
        self, folder: Path, name: str, key: ClusterKey, settings: TransportSettings | None = None
    ) -> None:
        self.name = name
        self.host = LOOPBACK
        self.key = key
        self.identity = NodeIdentity.load_or_create(folder / name)
        self.node_id = self.identity.node_id
        self.events: list[TransportEvent] = []
        self.refused: list[str] = []
        self.clones: list[NodeInfo | None] = []
        self.answer: Callable[[Received], None] | None = None
        self.refusals = RefusalLog(self.refused.append, time.monotonic)
        self.transport = Transport(
            self.identity,
            key,
            settings or TransportSettings(),
            self._on_event,
            refusals=self.refusals,
            on_clone=self.clones.append,
        )
        self.address = Address(LOOPBACK, 0)
        self.info = node_info(self.node_id, name)

    async def start(self) -> None:
        self.address = await self.transport.start(self.host, 0)
        self.info = replace(self.info, address=self.address)
        self.transport.set_info(self.info)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def messages(self) -> list[Message]:
        return [event.message for event in self.of(Received)]

    async def next(self, kind: type[E], count: int = 1) -> E:
        """Return the ``count``-th event of ``kind``, waiting for it."""
        await until_async(
            lambda: len(self.of(kind)) >= count, EVENT_DEADLINE_S, f"{self.name} got no {kind.__name__}"
        )
        return self.of(kind)[count - 1]

    async def link_to(self, other: ChainNode) -> LinkUp:
        """Dial ``other`` and return the link's event."""
        return await self.link_to_address(other.address)

    async def link_to_address(self, address: Address) -> LinkUp:
        """Dial ``address`` and return the link's event."""
        before = len(self.of(LinkUp))
        self.transport.dial(address)
        return await self.next(LinkUp, before + 1)

    async def refused_by(self, address: Address) -> DialFailed:
        """Dial ``address`` and return how that failed."""
        before = len(self.of(DialFailed))
        self.transport.dial(address)
        return await self.next(DialFailed, before + 1)

    def _on_event(self, event: TransportEvent) -> None:
        self.events.append(event)
        if self.answer is not None and isinstance(event, Received):
            self.answer(event)


@contextlib.asynccontextmanager
async def undisturbed(a: ChainNode, b: ChainNode) -> AsyncIterator[None]:
    """Link ``a`` to ``b`` and send heartbeats all along; each must arrive, in order, on that one link."""
    await a.link_to(b)
    sent = 0
    slowest_s = 0.0

    def all_arrived() -> bool:
        return sum(event.node_id == a.node_id for event in b.of(Received)) == sent

    async def pulse() -> None:
        nonlocal sent, slowest_s
        while True:
            a.transport.send(b.node_id, heartbeat(sent, a.node_id))
            sent += 1
            waited_s = await until_async(all_arrived, EVENT_DEADLINE_S, "an honest heartbeat did not arrive")
            slowest_s = max(slowest_s, waited_s)

    pulsing = asyncio.get_running_loop().create_task(pulse())
    try:
        yield
    finally:
        pulsing.cancel()
        await asyncio.wait({pulsing})
    assert pulsing.cancelled(), pulsing.exception()
    await until_async(
        lambda: (
            [e.message for e in b.of(Received) if e.node_id == a.node_id]
            == [heartbeat(seq, a.node_id) for seq in range(sent)]
        ),
        EVENT_DEADLINE_S,
        "honest heartbeats were lost",
    )
    assert not a.of(LinkDown)
    assert [event for event in b.of(InboundLost) if event.node_id == a.node_id] == []
    assert slowest_s < 1.0, f"an honest heartbeat took {slowest_s:.2f} s"


@contextlib.asynccontextmanager
async def running(*nodes: ChainNode) -> AsyncIterator[None]:
    """Start the nodes; close them all at the end, whatever happened."""
    try:
        for node in nodes:
            await node.start()
        yield
    finally:
        for node in nodes:
            await node.transport.close()
