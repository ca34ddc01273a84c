"""The machine's network interfaces as plain facts: what `interface_choice` decides upon."""

from __future__ import annotations

import ipaddress
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

SYSFS_NET = Path("/sys/class/net")


@dataclass(frozen=True, slots=True)
class InterfaceAddress:
    """One IPv4 address of an interface and the length of its network's prefix in bits."""

    host: str
    prefix_length: int


@dataclass(frozen=True, slots=True)
class Interface:
    """One network interface.

    Attributes:
        name: as the operating system and gloo know it, e.g. ``eth0``.
        addresses: its IPv4 addresses, in the system's order.
        addresses6: its IPv6 addresses without their scope; only to say why it cannot be used.
        up: it is switched on and has a carrier.
        wireless: it is a radio; False where the system does not tell.
        virtual_pair: one end of a veth pair: it reaches its own host's bridge and no further.
    """

    name: str
    addresses: tuple[InterfaceAddress, ...]
    addresses6: tuple[str, ...] = ()
    up: bool = True
    wireless: bool = False
    virtual_pair: bool = False


def list_interfaces() -> tuple[Interface, ...]:
    """Return every interface of this network namespace, by name."""
    stats = psutil.net_if_stats()
    found = []
    for name, entries in sorted(psutil.net_if_addrs().items()):
        addresses = tuple(
            InterfaceAddress(entry.address, _prefix_length(entry.netmask))
            for entry in entries
            if entry.family == socket.AF_INET
        )
        addresses6 = tuple(
            entry.address.split("%")[0] for entry in entries if entry.family == socket.AF_INET6
        )
        up = name in stats and stats[name].isup
        wireless = _is_wireless(name)
        found.append(Interface(name, addresses, addresses6, up, wireless, _driver(name) == "veth"))
    return tuple(found)


def default_route_address() -> str | None:
    """Return the local IPv4 address that packets to the internet would leave from.

    No packet is sent: connecting a datagram socket only asks the kernel for the route. None when
    there is no default route. The target is TEST-NET-2 (RFC 5737), which no network routes specially.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])


def _prefix_length(netmask: str | None) -> int:
    if netmask is None:  # point-to-point links, on some systems
        return 32
    return ipaddress.IPv4Network(f"0.0.0.0/{netmask}").prefixlen


def _is_wireless(name: str) -> bool:
    device = SYSFS_NET / name
    return name.startswith("wl") or (device / "wireless").exists() or (device / "phy80211").exists()


def _driver(name: str) -> str:
    """Return the name of the interface's driver as Linux tells it; empty when it does not.

    Asked of the kernel (SIOCETHTOOL, ETHTOOL_GDRVINFO of linux/ethtool.h) and not of /sys, which shows
    another network namespace than ours when only the namespace was entered.
    """
    if sys.platform != "linux":
        return ""
    import array
    import fcntl
    import struct

    siocethtool, ethtool_gdrvinfo, drvinfo_bytes = 0x8946, 0x00000003, 196
    answer = array.array("B", struct.pack("I", ethtool_gdrvinfo) + bytes(drvinfo_bytes - 4))
    request = struct.pack("16sP16x", name.encode()[:15], answer.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        try:
            fcntl.ioctl(asker, siocethtool, request)
        except OSError:  # loopback, tunnels and some old drivers do not answer
            return ""
    return answer.tobytes()[4:36].split(b"\0")[0].decode("ascii", "replace")
