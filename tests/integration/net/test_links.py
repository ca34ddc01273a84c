"""Two honest nodes: they meet, speak both ways, part, and are told promptly of each other's death."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from daisychain.core.events import CandidateSeen, LinkUp, Received
from daisychain.core.messages import HeartbeatAck
from daisychain.net.cluster_key import ClusterKey
from support.chain_node import LOOPBACK, ChainNode, heartbeat, running

pytestmark = pytest.mark.integration

KEY = ClusterKey(bytes(range(20)))


def test_two_nodes_prove_themselves_and_speak_both_ways(tmp_path: Path) -> None:
    async def scenario() -> None:
        a, b = ChainNode(tmp_path, "a", KEY), ChainNode(tmp_path, "b", KEY)
        async with running(a, b):
            up = await a.link_to(b)
            assert up == LinkUp(b.info, b.address, LOOPBACK)
            seen = await b.next(CandidateSeen)
            assert seen == CandidateSeen("inbound", a.address, a.node_id)
            await b.link_to(a)
            for seq in range(50):
                a.transport.send(b.node_id, heartbeat(seq, a.node_id))
                b.transport.send(a.node_id, HeartbeatAck(seq))
            await b.next(Received, 50)
            await a.next(Received, 50)
            assert b.messages() == [heartbeat(seq, a.node_id) for seq in range(50)]
            assert a.messages() == [HeartbeatAck(seq) for seq in range(50)]
            assert {event.node_id for event in b.of(Received)} == {a.node_id}
        assert not a.refused
        assert not b.refused

    asyncio.run(scenario())
