"""The traps of real networks, each built in namespaces of its own."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import threading
from collections.abc import Iterator

import pytest
from zeroconf import IPVersion
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from daisychain.core.events import CandidateSeen
from daisychain.core.ids import Address, ClusterId, NodeId
from daisychain.errors import NetworkError
from daisychain.net.discovery.discovery import Discovery, DiscoverySettings
from daisychain.net.discovery.mdns import MdnsSource
from daisychain.net.discovery.mdns_listener import MdnsSettings
from daisychain.net.discovery.mdns_record import SERVICE_TYPE, service_name
from daisychain.net.discovery.seeds import parse_seeds
from daisychain.net.discovery.sources import Announcement, SourceHealth
from daisychain.net.interface_choice import InterfaceChoice, Network, choose_interface, why_gone
from daisychain.net.interfaces import default_route_address, list_interfaces
from support.async_waiting import until_async
from support.listening import running
from support.namespaces import cable, inside, ip, namespaces, sysctl

CLUSTER = ClusterId("c" * 16)


def chosen(network: Network = Network.AUTO, wanted: str | None = None) -> InterfaceChoice:
    return choose_interface(list_interfaces(), wanted, network, default_route_address())


def announcement(host: str, port: int = 7447, cluster: ClusterId = CLUSTER) -> Announcement:
    return Announcement(NodeId(secrets.token_hex(16)), cluster, Address(host, port), "0.1.0")


@pytest.fixture
def pair() -> Iterator[tuple[str, str]]:
    """Two machines joined by a cable: 10.9.0.1 and 10.9.0.2 on their eth0."""
    with namespaces(2) as (a, b):
        cable((a, "eth0", "10.9.0.1/24"), (b, "eth0", "10.9.0.2/24"))
        yield a, b


def found_by(namespace: str, other: str, mute: bool = False) -> bool:
    """Return whether a node in ``namespace`` finds one that announces itself in ``other``."""
    theirs = announcement("10.9.0.2")

    async def look() -> bool:
        choice = chosen()
        async with running(MdnsSource(announcement(choice.address), choice)) as heard:
            await until_async(lambda: bool(heard.said), 10, "our own announcement unheard")

            def tell() -> None:
                async def announce() -> None:
                    async with running(MdnsSource(theirs, chosen())) as said:
                        await until_async(lambda: bool(said.said), 10, "their announcement unheard")
                        finished = (
                            (lambda: bool(said.addresses)) if not mute else (lambda: len(said.said) > 0)
                        )
                        await until_async(finished, 10, "they do not find us")

                inside(other, lambda: asyncio.run(announce()))

            await asyncio.to_thread(tell)
            return theirs.address in heard.addresses

    return inside(namespace, lambda: asyncio.run(look()))


def test_nodes_on_two_machines_find_each_other(pair: tuple[str, str]) -> None:
    assert found_by(*pair)


def test_no_ipv6_is_no_matter(pair: tuple[str, str]) -> None:
    for namespace in pair:
        sysctl(namespace, "ipv6/conf/all/disable_ipv6", 1)
    assert inside(pair[0], lambda: [i.addresses6 for i in list_interfaces() if i.name == "eth0"]) == [()]
    assert found_by(*pair)


def test_several_cards_docker_and_a_tailnet_on_one_machine(pair: tuple[str, str]) -> None:
    here, there = pair
    cable((here, "docker0", "172.17.0.1/16"), (there, "veth9", ""))
    cable((here, "wg0", "10.8.0.2/24"), (there, "veth8", ""))
    cable((here, "tailscale0", "100.64.0.1/32"), (there, "veth7", ""))
    cable((here, "eth1", "203.0.113.5/24"), (there, "veth6", ""))
    ip(f"-n {here} addr add 127.0.1.1/8 dev lo")
    ip(f"-n {here} route add default via 172.17.0.9")  # the worst case: by the wrong card

    lan = inside(here, lambda: chosen(Network.LAN))
    assert (lan.name, lan.address, lan.prefix_length) == ("eth0", "10.9.0.1", 24)
    rejected = {(r.name, r.address) for r in lan.rejected}
    assert {("docker0", "172.17.0.1"), ("wg0", "10.8.0.2"), ("lo", "127.0.1.1")} <= rejected
    assert inside(here, lambda: chosen(Network.TAILNET)).name == "tailscale0"
    assert inside(here, lambda: chosen(wanted="203.0.113.5")).name == "eth1"
    # a cable that only reaches its own host's bridge yields to the tailnet
    assert inside(here, chosen).name == "tailscale0"


def test_the_default_route_decides_between_two_lans(pair: tuple[str, str]) -> None:
    here, there = pair
    cable((here, "eth1", "192.168.7.2/24"), (there, "eth1", "192.168.7.1/24"))
    assert inside(here, default_route_address) is None
    assert inside(here, chosen).name == "eth0"
    ip(f"-n {here} route add default via 192.168.7.1")
    assert inside(here, default_route_address) == "192.168.7.2"
    assert inside(here, chosen).name == "eth1"


def test_an_interface_that_vanishes_or_is_renamed_is_told(pair: tuple[str, str]) -> None:
    here, _ = pair
    choice = inside(here, chosen)
    assert inside(here, lambda: why_gone(choice, list_interfaces())) is None
    for command in ("set eth0 down", "set eth0 name eth1", "set eth1 up"):
        ip(f"-n {here} link {command}")
    told = inside(here, lambda: why_gone(choice, list_interfaces()))
    assert told == "10.9.0.1 has moved from eth0 to eth1"
    ip(f"-n {here} link del eth1")
    assert inside(here, lambda: why_gone(choice, list_interfaces())) == "eth0 has lost the address 10.9.0.1"


def test_a_machine_with_ipv6_alone_is_refused_by_name() -> None:
    with namespaces(2) as (here, there):
        cable((here, "eth0", "fd00:9::1/64"), (there, "eth0", "fd00:9::2/64"))
        with pytest.raises(NetworkError, match=r"eth0: it has only IPv6 addresses \(fd00:9::1\)"):
            inside(here, chosen)


def test_on_a_network_that_drops_multicast_the_state_says_what_to_do() -> None:
    with namespaces(3) as (here, there, switch):
        ip(f"-n {switch} link add br0 type bridge mcast_snooping 0")
        ip(f"-n {switch} link set br0 up")
        for number, namespace in enumerate((here, there), start=1):
            cable((namespace, "eth0", f"10.9.0.{number}/24"), (switch, f"port{number}", ""))
            ip(f"-n {switch} link set port{number} master br0")
            ip(f"-n {switch} link set port{number} type bridge_slave mcast_flood off")
        theirs = announcement("10.9.0.2")

        def announce(started: threading.Event, finished: threading.Event) -> None:
            async def scenario() -> None:
                async with running(MdnsSource(theirs, chosen())) as said:
                    await until_async(lambda: bool(said.said), 10, "their announcement unheard")
                    started.set()
                    await asyncio.to_thread(finished.wait, 30)

            asyncio.run(scenario())

        async def listen() -> None:
            started, finished = threading.Event(), threading.Event()
            there_runs = asyncio.create_task(
                asyncio.to_thread(inside, there, lambda: announce(started, finished))
            )
            choice = chosen()
            seen: list[CandidateSeen] = []
            settings = DiscoverySettings(tailnet=False, seeds=parse_seeds("10.9.0.2", 7447))
            discovery = Discovery(settings, announcement(choice.address), choice, seen.append)
            try:
                assert await asyncio.to_thread(started.wait, 30)
                await discovery.start()
                await until_async(lambda: len(seen) >= 2, 20, "the seed is not offered")  # 5 s apart
                assert {candidate.source for candidate in seen} == {"seed"}
                told = next(state for state in discovery.states() if state.source == "mdns")
                assert told.health is SourceHealth.OK
                assert "heard 0 of this cluster" in told.text and "needs seeds or the tailnet" in told.text
            finally:
                finished.set()
                await discovery.close()
                await there_runs

        inside(here, lambda: asyncio.run(listen()))


def test_without_multicast_seeds_find_the_nodes_all_the_same(pair: tuple[str, str]) -> None:
    here, _ = pair
    sysctl(here, "ipv4/igmp_max_memberships", 0)

    async def scenario() -> list[CandidateSeen]:
        seen: list[CandidateSeen] = []
        choice = chosen()
        settings = DiscoverySettings(tailnet=False, seeds=parse_seeds("10.9.0.2", 7447))
        discovery = Discovery(settings, announcement(choice.address), choice, seen.append)
        await discovery.start()
        try:
            await until_async(
                lambda: any(
                    state.source == "mdns" and state.health is SourceHealth.UNAVAILABLE
                    for state in discovery.states()
                ),
                20,
                "mDNS does not notice",
            )
            text = next(state.text for state in discovery.states() if state.source == "mdns")
            assert "multicast does not work on eth0 (10.9.0.1)" in text
            assert "seeds or the tailnet" in text
        finally:
            await discovery.close()
        return seen

    seen = inside(here, lambda: asyncio.run(scenario()))
    assert {(c.source, c.address) for c in seen} == {("seed", Address("10.9.0.2", 7447))}


def test_a_port_that_another_program_keeps_for_itself_is_told(pair: tuple[str, str]) -> None:
    async def scenario() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as greedy:
            greedy.bind(("", 5353))
            choice = chosen()
            quick = MdnsSettings(open_retry_s=0.01)
            source = MdnsSource(announcement(choice.address), choice, quick)
            with pytest.raises(NetworkError, match=r"port 5353 on eth0.*disallow-other-stacks"):
                await source.run(lambda _: None, lambda *_: None)

    inside(pair[0], lambda: asyncio.run(scenario()))


def test_announcements_of_other_interfaces_are_not_candidates(pair: tuple[str, str]) -> None:
    here, there = pair
    cable((here, "docker0", "172.17.0.1/16"), (there, "eth5", "172.17.0.2/16"))

    async def scenario() -> None:
        lan, docker = chosen(), chosen(wanted="docker0")
        on_docker, on_lan = announcement("172.17.0.1"), announcement("10.9.0.1", 7448)
        async with (
            running(MdnsSource(announcement(lan.address), lan)) as heard,
            running(MdnsSource(on_docker, docker)) as other,
            running(MdnsSource(on_lan, lan)),
        ):
            await until_async(lambda: bool(other.said), 10, "not announced on the other interface")
            await until_async(lambda: on_lan.address in heard.addresses, 10, "the LAN's unheard")
            await until_async(lambda: "172.17.0.1 is not on this interface" in heard.last, 10, "not ignored")
            assert on_docker.address not in heard.addresses

    inside(here, lambda: asyncio.run(scenario()))


def test_nothing_is_announced_on_other_interfaces(pair: tuple[str, str]) -> None:
    here, there = pair
    cable((here, "docker0", "172.17.0.1/16"), (there, "eth5", "172.17.0.2/16"))
    ip_multicast_all = 49  # linux/in.h: off = only what this socket itself joined
    ears = {}

    def listen() -> None:
        for host in ("10.9.0.2", "172.17.0.2"):
            ears[host] = ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            ear.setblocking(False)
            ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            ear.setsockopt(socket.IPPROTO_IP, ip_multicast_all, 0)
            ear.bind(("", 5353))
            group = socket.inet_aton("224.0.0.251") + socket.inet_aton(host)
            ear.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)

    def packets(host: str) -> int:
        count = 0
        with contextlib.suppress(BlockingIOError):
            while ears[host].recv(9000):
                count += 1
        return count

    async def announce() -> None:
        choice = chosen()
        async with running(MdnsSource(announcement(choice.address), choice)):
            await until_async(lambda: packets("10.9.0.2") > 0, 10, "nothing on the chosen interface")
        # the goodbye is sent by now, too
        assert packets("10.9.0.2") > 0

    inside(there, listen)
    try:
        inside(here, lambda: asyncio.run(announce()))
        assert packets("172.17.0.2") == 0
    finally:
        for ear in ears.values():
            ear.close()


def test_a_flood_of_invented_services_leaves_room_for_the_chain(pair: tuple[str, str]) -> None:
    settings = MdnsSettings(neighbours_max=8, refresh_s=0.2)
    ours = announcement("10.9.0.1", 7449)

    async def flood(zeroconf: AsyncZeroconf) -> None:
        for number in range(100):
            node = NodeId(secrets.token_hex(16))
            text = {"node": node, "cluster": secrets.token_hex(8), "version": "6.6.6"}
            info = AsyncServiceInfo(
                SERVICE_TYPE,
                service_name(node),
                port=1000 + number,
                properties=text | ({"x": "y" * 200, "z": "y" * 250} if number % 2 else {}),
                server=f"{node}.local.",
                parsed_addresses=["10.9.0.1"],
            )
            await zeroconf.async_register_service(info, cooperating_responders=True)

    async def scenario() -> None:
        choice = chosen()
        async with running(MdnsSource(announcement(choice.address), choice, settings)) as heard:
            hostile = AsyncZeroconf(interfaces=[choice.address], ip_version=IPVersion.V4Only)
            try:
                await flood(hostile)
                await until_async(lambda: len(heard.addresses) >= 8, 20, "the flood unheard")
                async with running(MdnsSource(ours, choice)):
                    await until_async(
                        lambda: ours.address in heard.addresses, 20, "the chain's own crowded out"
                    )
                    await until_async(lambda: "heard 1 of this cluster" in heard.last, 10, "not counted")
                    assert "7 of others" in heard.last
                    known = len(heard.addresses)
                    await until_async(lambda: heard.count(ours.address) >= 3, 10, "not found again")
                    # no more than what is remembered is ever handed on
                    assert len(heard.addresses) == known <= 9
            finally:
                await hostile.async_close()

    inside(pair[0], lambda: asyncio.run(scenario()))


def test_garbage_packets_do_not_stop_discovery(pair: tuple[str, str]) -> None:
    ours = announcement("10.9.0.1", 7449)

    async def scenario() -> None:
        choice = chosen()
        async with running(MdnsSource(announcement(choice.address), choice)) as heard:
            await until_async(lambda: bool(heard.said), 10, "never announced")
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("10.9.0.1"))
                for size in (0, 1, 11, 12, 13, 100, 1400, 8000):
                    for filling in (b"\x00", b"\xff", b"\xc0\x0c"):
                        sender.sendto((filling * size)[:size], ("224.0.0.251", 5353))
            async with running(MdnsSource(ours, choice)):
                await until_async(lambda: ours.address in heard.addresses, 10, "deaf after garbage")

    inside(pair[0], lambda: asyncio.run(scenario()))
