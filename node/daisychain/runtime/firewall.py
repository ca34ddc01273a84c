"""The firewall lines that let a chain's peers in, by their addresses: pure; nothing is ever applied."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

PEERS_MAX = 64
"""Most peers that lines are made for: a chain has about sixteen."""

PLACEHOLDER = "PEER"
"""Stands for a peer's address while none is known."""

MDNS_PORT = 5353


@dataclass(frozen=True, slots=True)
class Openings:
    """What must reach this node: from every peer, since of two gloo ranks either may be the one that dials.

    Attributes:
        control_port: of the agents.
        low, high: the kernel's range of ephemeral ports, where gloo listens.
    """

    control_port: int
    low: int
    high: int


def parse_port_range(text: str) -> tuple[int, int]:
    """Return the range that ``ip_local_port_range`` holds; Linux's default when it is none."""
    parts = text.split()
    if len(parts) == 2 and all(part.isascii() and part.isdecimal() for part in parts):
        low, high = map(int, parts)
        if 1 <= low <= high <= 65535:
            return low, high
    return 32768, 60999


def peer_hosts(told: Iterable[str], own: str) -> tuple[str, ...]:
    """Return the IPv4 addresses among ``told`` but ``own``, in order, at most PEERS_MAX.

    Peers say them, and a person pastes the lines into a root shell: what is no address never gets there.
    """
    found: set[ipaddress.IPv4Address] = set()
    for host in told:
        try:
            address = ipaddress.IPv4Address(host)
        except ValueError:
            continue
        if host != own and not address.is_unspecified:
            found.add(address)
    return tuple(map(str, sorted(found)))[:PEERS_MAX]


def firewall_lines(peers: tuple[str, ...], openings: Openings) -> tuple[str, ...]:
    """Return one block for nftables, iptables and ufw each; a machine needs the one that it uses."""
    hosts = peers or (PLACEHOLDER,)
    port, low, high = openings.control_port, openings.low, openings.high
    listed = ",".join(hosts)
    return (
        "nft (your input chain may have other names):",
        f"  nft insert rule inet filter input ip saddr {{ {', '.join(hosts)} }} "
        f"tcp dport {{ {port}, {low}-{high} }} accept",
        f"  nft insert rule inet filter input ip saddr {{ {', '.join(hosts)} }} udp dport {MDNS_PORT} accept",
        "iptables:",
        f"  iptables -I INPUT -p tcp -s {listed} -m multiport --dports {port},{low}:{high} -j ACCEPT",
        f"  iptables -I INPUT -p udp -s {listed} --dport {MDNS_PORT} -j ACCEPT",
        "ufw:",
        *(f"  ufw allow proto tcp from {host} to any port {port},{low}:{high}" for host in hosts),
        *(f"  ufw allow proto udp from {host} to any port {MDNS_PORT}" for host in hosts),
    )
