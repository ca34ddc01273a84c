"""Which interface the chain uses, and every trap that must not catch it."""

from __future__ import annotations

import pytest

from daisychain.errors import NetworkError
from daisychain.net.interface_choice import Network, choose_interface, why_gone, why_not_proven
from daisychain.net.interfaces import Interface, InterfaceAddress


def nic(
    name: str, *hosts: str, up: bool = True, wireless: bool = False, virtual_pair: bool = False
) -> Interface:
    addresses = tuple(InterfaceAddress(host, 24) for host in hosts)
    return Interface(name, addresses, (), up, wireless, virtual_pair)


LO = nic("lo", "127.0.0.1", "127.0.1.1")
ETH = nic("eth0", "192.168.1.5")
TAILNET = nic("tailscale0", "100.101.102.103")


def test_the_lan_card_is_chosen_with_its_reason_and_the_rest_is_rejected_with_theirs() -> None:
    choice = choose_interface((LO, nic("docker0", "172.17.0.1"), ETH), default_route="192.168.1.5")
    assert (choice.name, choice.address, choice.kind) == ("eth0", "192.168.1.5", Network.LAN)
    assert choice.reason == "wired, with the default route"
    why = {(r.name, r.address): r.why for r in choice.rejected}
    assert "loopback" in why["lo", "127.0.1.1"]
    assert "Docker" in why["docker0", "172.17.0.1"]


@pytest.mark.parametrize(
    "name",
    [
        *("docker0", "br-3f2a9c", "veth12ab", "virbr0", "vEthernet (WSL)", "vmnet8", "utun4", "tun0"),
        *(
            "wg0",
            "zt7nnig26",
            "ppp0",
            "nordlynx",
            "docker_gwbridge",
            "lxdbr0",
            "bridge100",
            "tap0",
            "vboxnet0",
        ),
    ],
)
def test_what_only_looks_like_the_network_is_never_chosen_silently(name: str) -> None:
    look_alike = nic(name, "10.0.0.9")
    choice = choose_interface((look_alike, ETH), default_route="10.0.0.9")
    assert choice.name == "eth0"
    with pytest.raises(NetworkError, match=r"10\.0\.0\.9"):
        choose_interface((look_alike, LO), default_route="10.0.0.9")
    assert choose_interface((look_alike, ETH), wanted=name).address == "10.0.0.9"


@pytest.mark.parametrize("host", ["127.0.1.1", "127.0.0.1", "127.8.8.8", "169.254.10.20"])
def test_loopback_and_link_local_addresses_are_never_chosen_silently(host: str) -> None:
    assert choose_interface((nic("eth0", host, "10.1.1.1"),)).address == "10.1.1.1"
    with pytest.raises(NetworkError):
        choose_interface((nic("eth0", host),))


def test_the_tailnet_is_chosen_whenever_it_is_the_network() -> None:
    choice = choose_interface((ETH, LO, TAILNET), network=Network.TAILNET, default_route="192.168.1.5")
    assert (choice.name, choice.kind) == ("tailscale0", Network.TAILNET)
    assert choose_interface((ETH, TAILNET), network=Network.LAN).name == "eth0"
    with pytest.raises(NetworkError, match="TS_USERSPACE=false"):
        choose_interface((ETH, LO), network=Network.TAILNET)


def test_auto_prefers_a_real_card_then_the_tailnet_then_a_containers_cable() -> None:
    cable = nic("eth0", "172.18.0.3", virtual_pair=True)
    assert choose_interface((ETH, TAILNET)).name == "eth0"
    assert choose_interface((cable, LO, TAILNET), default_route="172.18.0.3").name == "tailscale0"
    assert choose_interface((cable, LO)).name == "eth0"


def test_the_tailnets_interface_is_recognised_under_other_names() -> None:
    mac = nic("utun3", "100.90.80.70")
    assert choose_interface((mac, ETH), network=Network.TAILNET).name == "utun3"
    renamed = nic("ts-home", "100.90.80.70")
    chosen = choose_interface((renamed, ETH), network=Network.TAILNET, tailnet_addresses=("100.90.80.70",))
    assert chosen.name == "ts-home"
    with pytest.raises(NetworkError):  # a provider's 100.64/10 is no tailnet
        choose_interface((nic("wwan0", "100.70.1.2"),), network=Network.TAILNET)


def test_several_cards_are_ordered_by_route_then_private_then_wire_then_name() -> None:
    wired, second = nic("enp3s0", "10.0.0.2"), nic("enp4s0", "10.0.1.2")
    wifi = nic("wlan0", "192.168.0.7", wireless=True)
    public = nic("eno1", "203.0.113.9")
    assert choose_interface((wifi, wired), default_route="192.168.0.7").name == "wlan0"
    assert choose_interface((wifi, second, wired, public)).name == "enp3s0"
    assert choose_interface((wifi, public)).name == "wlan0"
    assert choose_interface((public,)).name == "eno1"
    choice = choose_interface((wifi, second, wired))
    assert "enp3s0 comes first" in {r.name: r.why for r in choice.rejected}["wlan0"]


def test_a_name_or_an_address_that_is_asked_for_wins_over_everything() -> None:
    docker = nic("docker0", "172.17.0.1")
    assert choose_interface((ETH, docker), wanted="docker0").address == "172.17.0.1"
    two = nic("eth1", "10.0.0.1", "10.0.5.1")
    assert choose_interface((ETH, two), wanted="10.0.5.1").name == "eth1"
    assert choose_interface((LO, ETH), wanted="lo").kind is Network.LOOPBACK


def test_what_is_asked_for_and_absent_is_refused_with_the_list() -> None:
    with pytest.raises(NetworkError, match=r"'eth9'.*eth0 \(192\.168\.1\.5\).*tailscale0"):
        choose_interface((ETH, TAILNET), wanted="eth9")
    with pytest.raises(NetworkError, match="'wlan0' cannot be used: it has no IPv4 address"):
        choose_interface((ETH, nic("wlan0")), wanted="wlan0")


def test_a_machine_with_ipv6_alone_is_refused_by_name() -> None:
    only6 = Interface("eth0", (), ("fe80::1", "2001:db8::5"))
    with pytest.raises(NetworkError, match=r"eth0: it has only IPv6 addresses \(2001:db8::5\).*tailnet"):
        choose_interface((LO, only6))


def test_a_card_without_a_carrier_is_not_chosen() -> None:
    choice = choose_interface((nic("eth0", "10.0.0.1", up=False), nic("wlan0", "10.0.1.1", wireless=True)))
    assert choice.name == "wlan0"
    assert {r.name: r.why for r in choice.rejected}["eth0"] == "it is down"


def test_loopback_is_chosen_only_when_it_is_asked_for() -> None:
    assert choose_interface((LO, ETH), network=Network.LOOPBACK).address == "127.0.0.1"
    with pytest.raises(NetworkError):
        choose_interface((LO,))
    with pytest.raises(NetworkError, match="no interfaces"):
        choose_interface(())


def test_peers_proven_over_another_address_than_gloos_are_told() -> None:
    choice = choose_interface((ETH,))
    assert why_not_proven(choice, "192.168.1.5") is None
    told = why_not_proven(choice, "10.0.0.5")
    assert told is not None and "10.0.0.5" in told and "192.168.1.5 (eth0)" in told


def test_an_address_that_went_away_or_moved_is_told() -> None:
    choice = choose_interface((ETH,))
    assert why_gone(choice, (LO, ETH)) is None
    assert why_gone(choice, (LO,)) == "eth0 has lost the address 192.168.1.5"
    moved = why_gone(choice, (nic("eth1", "192.168.1.5"),))
    assert moved == "192.168.1.5 has moved from eth0 to eth1"
    assert why_gone(choice, (nic("eth0", "192.168.1.5", up=False),)) is None  # the cable comes back


def test_on_link_means_the_chosen_addresss_own_network() -> None:
    choice = choose_interface((ETH,))
    assert choice.on_link("192.168.1.77")
    assert not choice.on_link("172.17.0.2")
    assert not choice.on_link("no address")
