"""Honest nodes: they meet, speak both ways, part, and are told promptly of each other's death."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import support
from daisychain.core.events import CandidateSeen, DialFailed, InboundLost, LinkDown, LinkUp, Received
from daisychain.core.ids import Address, Generation, NodeId, Term
from daisychain.core.messages import Goodbye, HeartbeatAck, OfferBlob
from daisychain.errors import NetworkError
from daisychain.net.identity.cluster_key import ClusterKey
from daisychain.net.identity.node_identity import gives_way
from daisychain.net.links.transport import TransportSettings
from support.async_waiting import until_async
from support.chain_node import LOOPBACK, ChainNode, heartbeat, running

pytestmark = pytest.mark.integration

KEY = ClusterKey(bytes(range(20)))
DEADLINE_S = 10.0
START_DEADLINE_S = 30.0
KILL_TOLD_S = 0.1


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


def test_ipv6(tmp_path: Path) -> None:
    async def scenario() -> None:
        a, b = ChainNode(tmp_path, "a", KEY), ChainNode(tmp_path, "b", KEY)
        b.host = "::1"
        async with running(a, b):
            up = await a.link_to(b)
            assert up.address == Address("::1", b.address.port)
            assert up.local_host == "::1"
            assert (await b.next(CandidateSeen)).address == Address("::1", a.address.port)

    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:  # a machine without IPv6: then the address must be refused by name
            with pytest.raises(NetworkError, match=r"\[::1\]:0"):
                asyncio.run(scenario())
            return
    asyncio.run(scenario())


def test_a_closed_link_delivers_what_was_sent_before_and_is_told_to_the_other_side_only(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        settings = TransportSettings(queue_messages=2000, queue_bytes=1 << 26, close_timeout_s=DEADLINE_S)
        a = ChainNode(tmp_path, "a", KEY, settings)
        b = ChainNode(tmp_path, "b", KEY, TransportSettings(bytes_burst=1e9, messages_burst=1e4))
        async with running(a, b):
            await a.link_to(b)
            generation = Generation(Term(1, a.node_id), 1, 1)
            blobs = [OfferBlob(generation, rank, bytes(16_000)) for rank in range(1000)]
            for blob in blobs:  # more than the sockets hold
                a.transport.send(b.node_id, blob)
            a.transport.send(b.node_id, Goodbye(1, "done"))
            a.transport.close_link(b.node_id, "done")
            a.transport.send(b.node_id, heartbeat(99, a.node_id))  # no link any more: dropped
            assert await b.next(InboundLost) == InboundLost(a.node_id, reset=True)
            assert b.messages() == [*blobs, Goodbye(1, "done")]
            assert a.of(LinkDown) == []
            assert not a.refused
            assert not b.refused

    asyncio.run(scenario())


def test_a_node_that_closes_says_why_to_those_it_leaves(tmp_path: Path) -> None:
    async def scenario() -> None:
        a, b = ChainNode(tmp_path, "a", KEY), ChainNode(tmp_path, "b", KEY)
        async with running(a, b):
            await a.link_to(b)
            await b.link_to(a)
            await b.transport.close("shutting down for the night")
            down = await a.next(LinkDown)
            assert down == LinkDown(b.node_id, True, "the peer closed the link: shutting down for the night")
            assert await a.next(InboundLost) == InboundLost(b.node_id, reset=True)
            failed = await a.refused_by(b.address)
            assert failed.refused

    asyncio.run(scenario())


def test_closing_beside_a_frozen_peer_is_bounded(tmp_path: Path) -> None:
    async def scenario() -> None:
        a = ChainNode(tmp_path, "a", KEY, TransportSettings(close_timeout_s=0.3))
        async with running(a), peer_process(tmp_path, a) as peer:
            await a.link_to_address(peer.address)
            await a.next(CandidateSeen)
            os.kill(peer.pid, signal.SIGSTOP)
            started = time.monotonic()
            await a.transport.close()
            assert time.monotonic() - started < 3.0

    asyncio.run(scenario())


def test_a_newer_dial_replaces_the_link_without_a_word(tmp_path: Path) -> None:
    async def scenario() -> None:
        a, b = ChainNode(tmp_path, "a", KEY), ChainNode(tmp_path, "b", KEY)
        async with running(a, b):
            await a.link_to(b)
            await b.next(CandidateSeen)
            await a.link_to(b)
            await b.next(CandidateSeen, 2)
            a.transport.send(b.node_id, heartbeat(1, a.node_id))
            await b.next(Received)
            await until_async(
                lambda: b.transport._acceptor.guests == 1, DEADLINE_S, "the former connection stays"
            )
            assert not a.of(LinkDown)
            assert not b.of(InboundLost)

    asyncio.run(scenario())


def test_a_node_recognises_itself(tmp_path: Path) -> None:
    async def scenario() -> None:
        a = ChainNode(tmp_path, "a", KEY)
        async with running(a):
            failed = await a.refused_by(a.address)
            assert failed == DialFailed(a.address, False, "this is this node itself", ourselves=True)
            assert a.of(CandidateSeen) == []
            assert not a.refused
            assert not a.clones

    asyncio.run(scenario())


def test_a_cloned_disk_is_noticed_by_both_and_exactly_one_gives_way(tmp_path: Path) -> None:
    async def scenario() -> None:
        original = ChainNode(tmp_path, "a", KEY)
        clone = ChainNode(tmp_path, "a", KEY)
        clone.info = replace(clone.info, machine_id="another machine", incarnation=2)
        async with running(original, clone):
            failed = await clone.refused_by(original.address)
            assert not failed.ourselves
            assert "has this node's id" in failed.reason
            await until_async(lambda: len(original.clones) == 1, DEADLINE_S, "the original was not told")
            assert clone.clones == [original.info]
            assert original.clones == [clone.info]
            assert gives_way(clone.info, original.info)
            assert not gives_way(original.info, clone.info)
            assert not original.events

    asyncio.run(scenario())


def test_a_third_node_tells_the_clone(tmp_path: Path) -> None:
    async def scenario() -> None:
        original, third = ChainNode(tmp_path, "a", KEY), ChainNode(tmp_path, "third", KEY)
        clone = ChainNode(tmp_path, "a", KEY)
        clone.info = replace(clone.info, machine_id="another machine")
        async with running(original, third, clone):
            await original.link_to(third)
            await third.next(CandidateSeen)
            failed = await clone.refused_by(third.address)
            assert "another machine with this node id is linked" in failed.reason
            assert clone.clones == [None]
            original.transport.send(third.node_id, heartbeat(1, original.node_id))
            await third.next(Received)
            assert original.of(LinkDown) == []

    asyncio.run(scenario())


def test_a_chain_that_is_full_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        hub = ChainNode(tmp_path, "hub", KEY, TransportSettings(inbound_max=2))
        nodes = [ChainNode(tmp_path, f"n{i}", KEY) for i in range(3)]
        async with running(hub, *nodes):
            await nodes[0].link_to(hub)
            await nodes[1].link_to(hub)
            failed = await nodes[2].refused_by(hub.address)
            assert failed.reason == "it refused this node: 2 peers are linked to this node already"
            await nodes[0].link_to(hub)  # a peer that dials anew takes no new place

    asyncio.run(scenario())


def test_dials_in_flight_are_bounded(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = ChainNode(tmp_path, "a", KEY, TransportSettings(dials_max=2, dial_timeout_s=0.5))
        with socket.socket() as silent:  # the kernel accepts, nobody answers
            silent.bind((LOOPBACK, 0))
            silent.listen()
            address = Address(LOOPBACK, silent.getsockname()[1])
            async with running(node):
                for _ in range(3):
                    node.transport.dial(address)
                await node.next(DialFailed, 3)
                assert sorted(event.reason for event in node.of(DialFailed)) == [
                    "2 dials are already in flight",
                    "no answer within 0.5 s",
                    "no answer within 0.5 s",
                ]

    asyncio.run(scenario())


def test_a_peer_that_does_not_read_costs_bounded_memory(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = TransportSettings(queue_messages=16, queue_bytes=1 << 20)
        a = ChainNode(tmp_path, "a", KEY, settings)
        async with running(a), peer_process(tmp_path, a) as peer:
            up = await a.link_to_address(peer.address)
            os.kill(peer.pid, signal.SIGSTOP)
            generation = Generation(Term(1, a.node_id), 1, 1)
            for rank in range(2000):
                a.transport.send(up.info.node_id, OfferBlob(generation, rank, bytes(16_000)))
                if rank % 50 == 0:
                    await asyncio.sleep(0)
            outbox = a.transport._links[up.info.node_id]._outbox
            assert len(outbox) <= 16
            assert outbox.dropped > 1000
            assert a.of(LinkDown) == []

    asyncio.run(scenario())


def test_the_kernel_is_told_to_end_what_nobody_answers(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = TransportSettings(kernel_silence_s=8)
        a, b = ChainNode(tmp_path, "a", KEY, settings), ChainNode(tmp_path, "b", KEY, settings)
        async with running(a, b):
            await a.link_to(b)
            dialled = a.transport._links[b.node_id]._socket.get_extra_info("socket")
            (guest,) = b.transport._acceptor._guests
            for connection in (dialled, guest.connection):
                assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
                assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 2
                assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 8000

    asyncio.run(scenario())


def test_heartbeats_are_marked_to_pass_before_gradients(tmp_path: Path) -> None:
    """By a mark that access points sort by, and a priority that this machine's own queue sorts by."""

    async def scenario() -> None:
        a, b = ChainNode(tmp_path, "a", KEY), ChainNode(tmp_path, "b", KEY)
        async with running(a, b):
            await a.link_to(b)
            dialled = a.transport._links[b.node_id]._socket.get_extra_info("socket")
            (guest,) = b.transport._acceptor._guests
            for connection in (dialled, guest.connection):
                assert connection.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == 0xC0
                assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY) == 6
                assert connection.getsockopt(socket.IPPROTO_TCP, 16) == 1  # TCP_THIN_LINEAR_TIMEOUTS

    asyncio.run(scenario())


def test_the_port_is_taken(tmp_path: Path) -> None:
    async def scenario() -> None:
        a, b = ChainNode(tmp_path, "a", KEY), ChainNode(tmp_path, "b", KEY)
        async with running(a):
            with pytest.raises(NetworkError, match="choose another port"):
                await b.transport.start(LOOPBACK, a.address.port)
            with pytest.raises(NetworkError, match="not a name"):
                await b.transport.start("localhost", 0)
            with pytest.raises(NetworkError, match="has lost this address"):
                await b.transport.start("192.0.2.1", 0)
        await b.transport.close()

    asyncio.run(scenario())


@dataclass(frozen=True)
class PeerProcess:
    """A peer in a process of its own."""

    pid: int
    address: Address


@contextlib.asynccontextmanager
async def peer_process(folder: Path, node: ChainNode) -> AsyncIterator[PeerProcess]:
    """A peer that has dialled ``node``; killed at the end."""
    tests = Path(support.__file__).parent.parent
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "support.peer_process", str(folder), node.key.text, str(node.address.port)),
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(tests)},
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_DEADLINE_S):
            line = await process.stdout.readline()
        yield PeerProcess(process.pid, Address(LOOPBACK, int(line)))
    finally:
        with contextlib.suppress(ProcessLookupError):  # the test has killed it
            process.kill()
        await process.wait()


def test_a_killed_peer_is_told_at_once_on_both_links(tmp_path: Path) -> None:
    async def scenario() -> None:
        a = ChainNode(tmp_path, "a", KEY)
        async with running(a), peer_process(tmp_path, a) as peer:
            up = await a.link_to_address(peer.address)
            await a.next(CandidateSeen)
            node_id: NodeId = up.info.node_id
            a.transport.send(node_id, heartbeat(1, a.node_id))
            await a.next(Received)
            os.kill(peer.pid, signal.SIGKILL)
            killed_at = time.monotonic()
            told = (LinkDown(node_id, True, "the connection was reset"), InboundLost(node_id, True))
            await until_async(lambda: set(told) <= set(a.events), DEADLINE_S, "the death was not told")
            assert time.monotonic() - killed_at < KILL_TOLD_S
            failed = await a.refused_by(peer.address)
            assert failed.refused
            assert a.refused == []

    asyncio.run(scenario())


def test_a_killed_peer_with_unread_data_is_told_at_once_too(tmp_path: Path) -> None:
    """Then its kernel sends a reset instead of an orderly end."""

    async def scenario() -> None:
        a = ChainNode(tmp_path, "a", KEY)
        async with running(a), peer_process(tmp_path, a) as peer:
            up = await a.link_to_address(peer.address)
            await a.next(CandidateSeen)
            os.kill(peer.pid, signal.SIGSTOP)
            for seq in range(200):
                a.transport.send(up.info.node_id, heartbeat(seq, a.node_id))
            link = a.transport._links[up.info.node_id]
            await until_async(lambda: len(link._outbox) == 0, DEADLINE_S, "nothing was sent")
            os.kill(peer.pid, signal.SIGKILL)
            killed_at = time.monotonic()
            down = await a.next(LinkDown)
            assert time.monotonic() - killed_at < KILL_TOLD_S
            assert down == LinkDown(up.info.node_id, True, "the connection was reset")

    asyncio.run(scenario())
