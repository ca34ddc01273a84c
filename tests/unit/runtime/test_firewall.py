"""The firewall lines: every peer and port in each, and nothing that a peer says gets into a root shell."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daisychain.net.interface_choice import InterfaceChoice, Network
from daisychain.runtime.doctor_rules import judge_firewall
from daisychain.runtime.firewall import (
    PEERS_MAX,
    PLACEHOLDER,
    Openings,
    firewall_lines,
    parse_port_range,
    peer_hosts,
)

OPENINGS = Openings(7447, 32768, 60999)
ADA, BOB = "192.168.1.20", "192.168.1.21"


def choice(kind: Network) -> InterfaceChoice:
    return InterfaceChoice("eth0", "192.168.1.9", 24, kind, "", ())


def test_each_firewall_lets_every_peer_reach_both_kinds_of_ports() -> None:
    assert firewall_lines((ADA, BOB), OPENINGS) == (
        "nft (your input chain may have other names):",
        "  nft insert rule inet filter input ip saddr { 192.168.1.20, 192.168.1.21 } "
        "tcp dport { 7447, 32768-60999 } accept",
        "  nft insert rule inet filter input ip saddr { 192.168.1.20, 192.168.1.21 } udp dport 5353 accept",
        "iptables:",
        "  iptables -I INPUT -p tcp -s 192.168.1.20,192.168.1.21 "
        "-m multiport --dports 7447,32768:60999 -j ACCEPT",
        "  iptables -I INPUT -p udp -s 192.168.1.20,192.168.1.21 --dport 5353 -j ACCEPT",
        "ufw:",
        "  ufw allow proto tcp from 192.168.1.20 to any port 7447,32768:60999",
        "  ufw allow proto tcp from 192.168.1.21 to any port 7447,32768:60999",
        "  ufw allow proto udp from 192.168.1.20 to any port 5353",
        "  ufw allow proto udp from 192.168.1.21 to any port 5353",
    )


@given(st.lists(st.one_of(st.text(), st.ip_addresses().map(str)), max_size=200))
def test_only_addresses_of_others_are_taken_from_what_peers_say(told: list[str]) -> None:
    hosts = peer_hosts([*told, ADA, "1.2.3.4; reboot", "$(reboot)", BOB], own=BOB)
    assert len(hosts) <= PEERS_MAX
    assert BOB not in hosts
    assert all(str(ipaddress.IPv4Address(host)) == host for host in hosts)
    assert len(set(hosts)) == len(hosts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("40000\t40999\n", (40000, 40999)),
        ("", (32768, 60999)),
        ("60999 32768", (32768, 60999)),
        ("1 2 3", (32768, 60999)),
        ("0 70000", (32768, 60999)),
        ("-1 x", (32768, 60999)),
    ],
)
def test_the_kernels_port_range_is_read(text: str, expected: tuple[int, int]) -> None:
    assert parse_port_range(text) == expected


def test_only_a_lan_needs_lines_and_without_peers_they_say_whose_address_is_missing() -> None:
    assert judge_firewall(choice(Network.TAILNET), (ADA,), OPENINGS).remedy == ""
    assert judge_firewall(choice(Network.LOOPBACK), (ADA,), OPENINGS).remedy == ""
    assert ADA in judge_firewall(choice(Network.LAN), (ADA,), OPENINGS).remedy
    check = judge_firewall(choice(Network.LAN), (), OPENINGS)
    assert f"from {PLACEHOLDER} to any" in check.remedy and PLACEHOLDER in check.text
