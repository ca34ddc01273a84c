"""Nodes find each other by mDNS on one interface, quickly, and forget who left."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
import socket
import sys

from daisychain.core.ids import Address, ClusterId, NodeId
from daisychain.net.discovery.mdns import MdnsSource
from daisychain.net.discovery.mdns_check import check_mdns
from daisychain.net.discovery.mdns_listener import MdnsSettings
from daisychain.net.discovery.sources import Announcement, SourceHealth
from daisychain.net.interface_choice import InterfaceChoice, Network
from support.async_waiting import until_async
from support.listening import Heard, running

LOOPBACK = InterfaceChoice("lo", "127.0.0.1", 8, Network.LOOPBACK, "", ())
FAST = MdnsSettings(refresh_s=0.1)
# far apart in processes with neighbouring ids: they hear each other, and would take one's node for another's
_ports = itertools.count(20000 + os.getpid() * 1009 % 40000)


def announcement(cluster: str, node: str | None = None) -> Announcement:
    node_id = NodeId(node or secrets.token_hex(16))
    return Announcement(node_id, ClusterId(cluster), Address("127.0.0.1", next(_ports)), "0.1.0")


def of_cluster(heard: Heard, cluster: str) -> set[Address]:
    return {c.address for c in heard.candidates if c.cluster_id == cluster}


def test_three_nodes_on_one_machine_find_each_other() -> None:
    cluster = secrets.token_hex(8)
    first, second, third = (announcement(cluster) for _ in range(3))

    async def scenario() -> float:
        async with running(MdnsSource(first, LOOPBACK)) as a, running(MdnsSource(second, LOOPBACK)) as b:
            await until_async(lambda: bool(of_cluster(a, cluster) and of_cluster(b, cluster)), 10, "two")
            async with running(MdnsSource(third, LOOPBACK)) as c:
                took_s = await until_async(lambda: third.address in a.addresses, 10, "the newcomer unheard")
                everyone = {first.address, second.address}
                await until_async(lambda: of_cluster(c, cluster) == everyone, 10, "the newcomer deaf")
                seen = next(found for found in a.candidates if found.address == third.address)
                assert (seen.source, seen.node_id, seen.cluster_id) == ("mdns", third.node_id, cluster)
                assert "2 of this cluster" in a.last
                return took_s

    # the announcement itself tells: no question, no second; measured 2 ms
    assert asyncio.run(scenario()) < 1.0


def test_who_is_still_there_is_found_again_and_who_said_goodbye_is_not() -> None:
    cluster = secrets.token_hex(8)
    stays, leaves = announcement(cluster), announcement(cluster)

    # whoever would have to be asked first would be remembered for a minute
    patient = MdnsSettings(refresh_s=0.1, resolve_timeout_s=60.0)

    async def scenario() -> None:
        async with running(MdnsSource(stays, LOOPBACK, patient)) as heard:
            async with running(MdnsSource(leaves, LOOPBACK, FAST)):
                await until_async(lambda: heard.count(leaves.address) >= 3, 10, "found only once")
                assert "heard 1 of this cluster" in heard.last
            await until_async(lambda: "heard 0 of this cluster" in heard.last, 10, "the goodbye unheard")
            heard.candidates.clear()
            again = announcement(cluster)
            async with running(MdnsSource(again, LOOPBACK, FAST)):
                await until_async(lambda: heard.count(again.address) >= 3, 10, "a newcomer after it")
            assert leaves.node_id not in {found.node_id for found in heard.candidates}

    asyncio.run(scenario())


def test_a_node_announces_itself_again_to_whoever_could_not_hear_it_before() -> None:
    node = announcement(secrets.token_hex(8))
    name = node.node_id.encode()

    async def scenario() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear:
            ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            ear.bind(("224.0.0.251", 5353))
            joined = socket.inet_aton("224.0.0.251") + socket.inet_aton("127.0.0.1")
            ear.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
            ear.setblocking(False)
            heard = 0

            def announcements() -> int:
                nonlocal heard
                with contextlib.suppress(BlockingIOError):
                    while True:
                        heard += name in ear.recv(9000)
                return heard

            async with running(MdnsSource(node, LOOPBACK, MdnsSettings(announce_again_s=0.1))):
                await until_async(lambda: announcements() >= 25, 20, "it announces itself at its start only")

    asyncio.run(scenario())


ANNOUNCE = """
import asyncio, sys
from daisychain.core.ids import Address
from daisychain.net.interface_choice import InterfaceChoice, Network
from daisychain.net.discovery.mdns import MdnsSource
from daisychain.net.discovery.mdns_listener import MdnsSettings
from daisychain.net.discovery.sources import Announcement
lo = InterfaceChoice("lo", "127.0.0.1", 8, Network.LOOPBACK, "", ())
node = Announcement(sys.argv[1], sys.argv[2], Address("127.0.0.1", int(sys.argv[3])), "0.1.0")
source = MdnsSource(node, lo, MdnsSettings(record_ttl_s=1))
asyncio.run(source.run(lambda found: None, lambda health, text: None))
"""


def test_a_node_that_was_killed_is_forgotten_when_its_records_expire() -> None:
    cluster = secrets.token_hex(8)
    stays, dies = announcement(cluster), announcement(cluster)
    told = [dies.node_id, dies.cluster_id, str(dies.address.port)]

    async def scenario() -> None:
        settings = MdnsSettings(refresh_s=0.1, resolve_timeout_s=0.5)
        async with running(MdnsSource(stays, LOOPBACK, settings)) as heard:
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", ANNOUNCE, *told)
            try:
                await until_async(lambda: dies.address in heard.addresses, 20, "never found")
                alive = heard.count(dies.address)  # it answers, though its records live for a second only
                await until_async(lambda: heard.count(dies.address) > alive + 25, 20, "forgotten while alive")
                assert "heard 1 of this cluster" in heard.last
            finally:
                process.kill()
                await process.wait()
            await until_async(lambda: "heard 0 of this cluster" in heard.last, 20, "the dead remembered")

    asyncio.run(scenario())


def test_a_node_that_came_back_at_another_port_is_found_there() -> None:
    cluster = secrets.token_hex(8)
    stays, before = announcement(cluster), announcement(cluster)
    after = announcement(cluster, before.node_id)

    async def scenario() -> None:
        async with running(MdnsSource(stays, LOOPBACK, FAST)) as heard:
            async with running(MdnsSource(before, LOOPBACK)):
                await until_async(lambda: before.address in heard.addresses, 10, "never found")
            async with running(MdnsSource(after, LOOPBACK)):
                await until_async(lambda: after.address in heard.addresses, 10, "not found again")

    asyncio.run(scenario())


def test_a_neighbour_of_another_cluster_is_a_candidate_that_says_so() -> None:
    ours, theirs = announcement(secrets.token_hex(8)), announcement(secrets.token_hex(8))

    async def scenario() -> None:
        async with running(MdnsSource(ours, LOOPBACK)) as heard, running(MdnsSource(theirs, LOOPBACK)):
            await until_async(lambda: theirs.address in heard.addresses, 10, "the neighbour unheard")
            seen = next(found for found in heard.candidates if found.address == theirs.address)
            assert seen.cluster_id == theirs.cluster_id

    asyncio.run(scenario())


def test_the_check_hears_itself_and_the_nodes_that_run() -> None:
    node = announcement(secrets.token_hex(8))

    async def scenario() -> None:
        async with running(MdnsSource(node, LOOPBACK)) as heard:
            await until_async(lambda: bool(heard.said), 10, "never announced")
            assert heard.said[0][0] is SourceHealth.OK
            finding = await check_mdns(LOOPBACK)
            assert finding.echo_s < 3.0
            assert node.node_id in {neighbour.node_id for neighbour in finding.neighbours}
            # the check itself is no node to anybody
            assert all(candidate.address.port != 9 for candidate in heard.candidates)

    asyncio.run(scenario())
