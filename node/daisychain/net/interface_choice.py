"""Which interface the chain uses, why, and why not the others: pure decisions upon `interfaces`' facts.

The address chosen is the one that the control port listens on, that peers are proven over and that
gloo binds. A wrong one fails late and obscurely (gloo bound to 127.0.1.1 or to docker0 waits for
peers that cannot come), so interfaces that only look like the network are never taken silently.
"""

from __future__ import annotations

import fnmatch
import ipaddress
from dataclasses import dataclass
from enum import StrEnum

from daisychain.errors import NetworkError
from daisychain.net.interfaces import Interface, InterfaceAddress

LOOPBACK = ipaddress.IPv4Network("127.0.0.0/8")
LINK_LOCAL = ipaddress.IPv4Network("169.254.0.0/16")
TAILNET_RANGE = ipaddress.IPv4Network("100.64.0.0/10")
PRIVATE_RANGES = tuple(map(ipaddress.IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))

NOT_THE_NETWORK: tuple[tuple[str, str], ...] = (
    ("docker0", "Docker's bridge: only this machine's containers are behind it"),
    ("docker_gwbridge", "Docker's bridge: only this machine's containers are behind it"),
    ("br-*", "a Docker network's bridge: only this machine's containers are behind it"),
    ("veth*", "a container's cable into this machine"),
    ("podman*", "Podman's bridge: only this machine's containers are behind it"),
    ("cni*", "a container network's bridge"),
    ("cali*", "a container network"),
    ("flannel*", "a container network"),
    ("cilium*", "a container network"),
    ("kube-*", "a container network"),
    ("lxcbr*", "a container network's bridge"),
    ("lxdbr*", "a container network's bridge"),
    ("incusbr*", "a container network's bridge"),
    ("virbr*", "libvirt's bridge: only this machine's virtual machines are behind it"),
    ("vnet*", "a virtual machine's cable into this machine"),
    ("vmnet*", "VMware's network: only this machine's virtual machines are behind it"),
    ("vboxnet*", "VirtualBox's network: only this machine's virtual machines are behind it"),
    ("virtualbox host-only*", "VirtualBox's network: only this machine's virtual machines are behind it"),
    ("vmware network adapter*", "VMware's network: only this machine's virtual machines are behind it"),
    ("vethernet*", "Hyper-V's or WSL's network: only this machine's virtual machines are behind it"),
    ("bridge1[0-9][0-9]", "macOS's virtual machine network"),
    ("utun*", "the tunnel of another VPN"),
    ("tun*", "the tunnel of another VPN"),
    ("tap*", "the tunnel of another VPN"),
    ("wg*", "the WireGuard tunnel of another VPN"),
    ("ppp*", "a dial-up link or the tunnel of another VPN"),
    ("ipsec*", "the tunnel of another VPN"),
    ("nordlynx*", "the tunnel of another VPN"),
    ("proton*", "the tunnel of another VPN"),
    ("cscotun*", "the tunnel of another VPN"),
    ("gpd*", "the tunnel of another VPN"),
    ("zt*", "a ZeroTier network"),
    ("ham[0-9]*", "a Hamachi network"),
    ("awdl*", "Apple's device-to-device link"),
    ("llw*", "Apple's device-to-device link"),
    ("anpi*", "an Apple-internal link"),
    ("dummy*", "a dummy interface"),
    ("ifb*", "a traffic-shaping interface"),
)
"""Interfaces that are never chosen unless they are named, by pattern (lower case): what each one is."""


class Network(StrEnum):
    """Which network the chain runs on."""

    AUTO = "auto"  # the LAN, or the tailnet where there is no LAN of its own
    LAN = "lan"
    TAILNET = "tailnet"
    LOOPBACK = "loopback"  # several nodes on one machine: the demo and the tests


@dataclass(frozen=True, slots=True)
class Rejected:
    """An interface's address that was not chosen. ``address`` is empty when it has none."""

    name: str
    address: str
    why: str


@dataclass(frozen=True, slots=True)
class InterfaceChoice:
    """The interface and IPv4 address that the chain uses.

    Attributes:
        name, address, prefix_length: the interface, its address and its network's size in bits.
        kind: LAN, TAILNET or LOOPBACK; never AUTO.
        reason: why this one, for people.
        rejected: every other address, with why not.
    """

    name: str
    address: str
    prefix_length: int
    kind: Network
    reason: str
    rejected: tuple[Rejected, ...]

    def on_link(self, host: str) -> bool:
        """Return whether ``host`` (numeric) belongs to the chosen address's own network."""
        try:
            network = ipaddress.ip_network(f"{self.address}/{self.prefix_length}", strict=False)
            return ipaddress.ip_address(host) in network
        except ValueError:
            return False


def choose_interface(
    interfaces: tuple[Interface, ...],
    wanted: str | None = None,
    network: Network = Network.AUTO,
    default_route: str | None = None,
    tailnet_addresses: tuple[str, ...] = (),
) -> InterfaceChoice:
    """Return the interface that the chain uses on ``network``.

    ``wanted``: an interface's name or one of its IPv4 addresses; it wins over everything.
    ``default_route``: the address that packets to the internet leave from, see `default_route_address`.
    ``tailnet_addresses``: our own addresses as the tailnet tells them; they recognise its interface
    under any name.

    Order among several: the tailnet's before a LAN only on the tailnet; a real card before a
    container's cable; with the default route first; private ranges first; wired before wireless; by name.
    Raises NetworkError with the whole list when nothing fits; it ends the command.
    """
    if wanted:
        return _choose_wanted(interfaces, wanted, tailnet_addresses)
    eligible: list[tuple[Interface, InterfaceAddress, Network]] = []
    rejected: list[Rejected] = []
    for interface in interfaces:
        if not interface.addresses:
            rejected.append(Rejected(interface.name, "", _why_without_address(interface)))
        for address in interface.addresses:
            why = _why_not(interface, address, network, tailnet_addresses)
            if why:
                rejected.append(Rejected(interface.name, address.host, why))
            else:
                kind = _kind(interface, address, tailnet_addresses)
                eligible.append((interface, address, kind))
    if not eligible:
        raise NetworkError(
            f"no interface fits the network {network.value!r}: {_listed(rejected)}",
            _remedy(network, interfaces),
        )
    eligible.sort(key=lambda found: _rank(found[0], found[1], found[2], default_route))
    (best, address, kind), others = eligible[0], eligible[1:]
    reason = _reason(best, address, kind, default_route)
    rejected += [
        Rejected(other.name, theirs.host, f"usable, but {best.name} comes first: {reason}")
        for other, theirs, _ in others
    ]
    rejected.sort(key=lambda entry: (entry.name, entry.address))
    return InterfaceChoice(best.name, address.host, address.prefix_length, kind, reason, tuple(rejected))


def why_not_proven(choice: InterfaceChoice, local_host: str) -> str | None:
    """Return why the address that gloo would bind is not the one that a peer was proven over.

    ``local_host`` is our own end of an authenticated link. None when they agree.
    """
    if local_host == choice.address:
        return None
    return (
        f"peers reach this node over {local_host}, but it would train over {choice.address} ({choice.name}): "
        f"name the interface that holds {local_host}"
    )


def why_gone(choice: InterfaceChoice, interfaces: tuple[Interface, ...]) -> str | None:
    """Return why the chosen address can no longer be used; None while it can.

    Interfaces come and go: a container's network comes back under another name, a tailnet's sidecar
    restarts and leaves a dead namespace behind. A lost carrier is none of that: the cable comes back, and
    a node that began anew for it would throw its trainer's state away, on every node behind one switch.
    """
    holder = next((i for i in interfaces if any(a.host == choice.address for a in i.addresses)), None)
    if holder is None:
        return f"{choice.name} has lost the address {choice.address}"
    if holder.name != choice.name:
        return f"{choice.address} has moved from {choice.name} to {holder.name}"
    return None


def _choose_wanted(
    interfaces: tuple[Interface, ...], wanted: str, tailnet_addresses: tuple[str, ...]
) -> InterfaceChoice:
    rejected: list[Rejected] = []
    matches: list[tuple[Interface, InterfaceAddress]] = []
    for interface in interfaces:
        if not interface.addresses:
            rejected.append(Rejected(interface.name, "", _why_without_address(interface)))
        for address in interface.addresses:
            if wanted in (interface.name, address.host):
                matches.append((interface, address))
            else:
                rejected.append(Rejected(interface.name, address.host, f"{wanted} was asked for"))
    if matches:
        interface, address = matches[0]
        rejected += [Rejected(i.name, a.host, f"{address.host} comes first there") for i, a in matches[1:]]
        kind = _kind(interface, address, tailnet_addresses)
        return InterfaceChoice(
            interface.name, address.host, address.prefix_length, kind, "it was named", tuple(rejected)
        )
    known = next((interface for interface in interfaces if interface.name == wanted), None)
    what = f"there is no interface or IPv4 address {wanted!r} here"
    if known is not None:
        what = f"the interface {wanted!r} cannot be used: {_why_without_address(known)}"
    here = ", ".join(
        f"{i.name} ({', '.join(a.host for a in i.addresses) or 'no IPv4 address'})" for i in interfaces
    )
    raise NetworkError(what, f"Name one of: {here}")


def _kind(interface: Interface, address: InterfaceAddress, tailnet_addresses: tuple[str, ...]) -> Network:
    """Return LOOPBACK, TAILNET or LAN."""
    ip = ipaddress.IPv4Address(address.host)
    if ip in LOOPBACK:
        return Network.LOOPBACK
    name = interface.name.lower()
    if address.host in tailnet_addresses or name.startswith("tailscale"):
        return Network.TAILNET
    # macOS gives Tailscale a numbered utun; elsewhere 100.64/10 may be a provider's own network
    if name.startswith("utun") and ip in TAILNET_RANGE:
        return Network.TAILNET
    return Network.LAN


def _why_not(
    interface: Interface, address: InterfaceAddress, network: Network, tailnet_addresses: tuple[str, ...]
) -> str:
    """Return why this address is not eligible on ``network``; empty when it is."""
    kind = _kind(interface, address, tailnet_addresses)
    if not interface.up:
        return "it is down"
    if network is Network.LOOPBACK:
        return (
            ""
            if kind is Network.LOOPBACK and address.host == "127.0.0.1"
            else "only this machine was asked for"
        )
    if kind is Network.LOOPBACK:
        return "loopback: no other machine can reach it"
    if network is Network.TAILNET:
        return "" if kind is Network.TAILNET else "it is not the tailnet's interface"
    if kind is Network.TAILNET:
        return "" if network is Network.AUTO else "the LAN was asked for, and this is the tailnet"
    for pattern, what in NOT_THE_NETWORK:
        if fnmatch.fnmatchcase(interface.name.lower(), pattern):
            return what
    ip = ipaddress.IPv4Address(address.host)
    if ip in LINK_LOCAL:
        return "a link-local address (169.254/16): it got none from the network"
    if ip.is_multicast or ip.is_unspecified:
        return "not an address that a machine can be reached at"
    return ""


def _why_without_address(interface: Interface) -> str:
    if not interface.up:
        return "it is down"
    lasting = [host for host in interface.addresses6 if not host.lower().startswith("fe80")]
    if lasting and lasting != ["::1"]:
        return f"it has only IPv6 addresses ({lasting[0]}), and DaisyChain needs IPv4"
    return "it has no IPv4 address"


def _rank(
    interface: Interface, address: InterfaceAddress, kind: Network, default_route: str | None
) -> tuple[int, bool, bool, bool, str, str]:
    """Return the sort key of an eligible address: the smallest is chosen."""
    ip = ipaddress.IPv4Address(address.host)
    # where a container has a tailnet, its own cable only reaches its host's bridge
    place = 1 if kind is Network.TAILNET else 2 if interface.virtual_pair else 0
    private = any(ip in network for network in PRIVATE_RANGES)
    return place, address.host != default_route, not private, interface.wireless, interface.name, address.host


def _reason(interface: Interface, address: InterfaceAddress, kind: Network, default_route: str | None) -> str:
    if kind is Network.LOOPBACK:
        return "only this machine was asked for"
    if kind is Network.TAILNET:
        return "it is the tailnet's interface"
    wire = "wireless" if interface.wireless else "wired"
    if interface.virtual_pair:
        wire = "a container's or namespace's cable"
    return f"{wire}, with the default route" if address.host == default_route else f"{wire}, on the LAN"


def _listed(rejected: list[Rejected]) -> str:
    if not rejected:
        return "this machine has no interfaces"
    return "; ".join(
        f"{entry.name}{' ' + entry.address if entry.address else ''}: {entry.why}" for entry in rejected
    )


def _remedy(network: Network, interfaces: tuple[Interface, ...]) -> str:
    if network is Network.TAILNET:
        return (
            "Start Tailscale with a real interface (in a container TS_USERSPACE=false), "
            "and look at `tailscale status`"
        )
    if any(interface.addresses6 for interface in interfaces if interface.up and not interface.addresses):
        return "Give this machine an IPv4 address, or join it to a tailnet, which has IPv4 everywhere"
    return "Connect the machine to a network, or name the interface to use"
