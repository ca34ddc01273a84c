"""What control connections cost: a heartbeat's way there and back, and a chain that is idle."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from pathlib import Path

import psutil
import pytest

from daisychain.core.events import CandidateSeen, Received
from daisychain.core.messages import Heartbeat, HeartbeatAck
from daisychain.net.identity.cluster_key import ClusterKey
from support.async_waiting import until_async
from support.chain_node import ChainNode, heartbeat, running

pytestmark = pytest.mark.integration

KEY = ClusterKey(bytes(range(20)))
DEADLINE_S = 20.0


def test_a_heartbeat_is_answered_in_milliseconds(tmp_path: Path) -> None:
    async def scenario() -> list[float]:
        a, b = ChainNode(tmp_path, "a", KEY), ChainNode(tmp_path, "b", KEY)

        def answer(event: Received) -> None:
            if isinstance(event.message, Heartbeat):
                b.transport.send(a.node_id, HeartbeatAck(event.message.seq))

        answered = asyncio.Event()
        a.answer = lambda _: answered.set()
        b.answer = answer
        round_trips = []
        async with running(a, b):
            await a.link_to(b)
            await b.link_to(a)
            for seq in range(200):
                answered.clear()
                started = time.perf_counter()
                a.transport.send(b.node_id, heartbeat(seq, a.node_id))
                async with asyncio.timeout(DEADLINE_S):
                    await answered.wait()
                round_trips.append(time.perf_counter() - started)
        return round_trips

    round_trips = asyncio.run(scenario())
    median_ms = statistics.median(round_trips) * 1000
    print(f"heartbeat there and back: median {median_ms:.2f} ms, worst {max(round_trips) * 1000:.2f} ms")
    assert median_ms < 10.0


def test_sixteen_idle_links_cost_no_processor_and_little_memory(tmp_path: Path) -> None:
    async def scenario() -> None:
        hub = ChainNode(tmp_path, "hub", KEY)
        nodes = [ChainNode(tmp_path, f"n{i}", KEY) for i in range(16)]
        process = psutil.Process()
        async with running(hub, *nodes):
            before = process.memory_info().rss
            for node in nodes:
                await hub.link_to(node)
                await node.link_to(hub)
            await until_async(lambda: len(hub.of(CandidateSeen)) == 16, DEADLINE_S, "not all came")
            link_kib = (process.memory_info().rss - before) / 64 / 1024  # both ends are ours
            started, used = time.monotonic(), sum(os.times()[:2])
            await until_async(lambda: time.monotonic() - started > 2.0, DEADLINE_S, "time stands still")
            idle_cpu = (sum(os.times()[:2]) - used) / (time.monotonic() - started)
        print(f"32 links, both ends here: {link_kib:.0f} KiB an end, {idle_cpu * 100:.2f}% of a core idle")
        assert link_kib < 300
        assert idle_cpu < 0.05  # most of it the waiting test itself

    asyncio.run(scenario())
