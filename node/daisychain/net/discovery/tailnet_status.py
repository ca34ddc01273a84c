"""What `tailscale status --json` says, and whom of a tailnet to dial: pure.

The parser is tolerant, since the JSON differs between Tailscale's versions: unknown keys are ignored,
and a peer whose entry has another shape than expected is left out.
"""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass

from daisychain.errors import NetworkError
from daisychain.net.interface_choice import TAILNET_RANGE

TAG = "tag:daisychain"
"""Machines with this tag are the chain's, when any has it."""

MULLVAD_TAG = "tag:mullvad-exit-node"
NODE_SYSTEMS = ("linux", "windows", "macos")

DIAL_MAX = 64
"""Most machines dialled: a company's tailnet has thousands, and a chain has about sixteen."""

LOGIN_PAGE_MAX = 200
"""Longest address of a login page that is shown: Tailscale's own have some 45 characters."""


@dataclass(frozen=True, slots=True)
class TailnetPeer:
    """Another machine of the tailnet, as far as discovery needs it.

    Attributes:
        address: its IPv4 address in 100.64.0.0/10; empty when it has none.
        relay_region: the DERP region it is reached over; empty for a direct path or an idle peer.
    """

    name: str
    dns_name: str
    system: str
    address: str
    user_id: int
    tags: tuple[str, ...]
    online: bool
    expired: bool
    shared_in: bool
    active: bool
    direct_address: str
    peer_relay: str
    relay_region: str


@dataclass(frozen=True, slots=True)
class TailnetStatus:
    """A running tailnet, seen from this machine.

    Attributes:
        own_name: this machine's DNS name in it, or its host name where it has none.
        addresses: our own addresses in it.
        suffix: its DNS suffix without the trailing dot; empty when not told.
        userspace: tailscaled has no interface, so that gloo cannot bind there.
        health: what Tailscale itself complains about.
    """

    name: str
    own_name: str
    suffix: str
    addresses: tuple[str, ...]
    user_id: int
    tags: tuple[str, ...]
    userspace: bool
    health: tuple[str, ...]
    peers: tuple[TailnetPeer, ...]


def parse_status(text: str) -> TailnetStatus:
    """Return the tailnet's status from the JSON that the CLI printed.

    Raises NetworkError when the tailnet is not up, with what would bring it up, or when the text is
    not such JSON; the tailnet source says so and asks again later.
    """
    try:
        root = json.loads(text)
    except (ValueError, RecursionError):
        raise NetworkError(
            f"tailscale printed no JSON but {text.strip()[:80]!r}", "Update Tailscale"
        ) from None
    if not isinstance(root, dict) or not isinstance(root.get("BackendState"), str):
        raise NetworkError("tailscale's status has no BackendState", "Update Tailscale")
    _check_running(root["BackendState"], _texts(root.get("Health")), _login_page(root.get("AuthURL")))
    me = _table(root.get("Self"))
    tailnet = _table(root.get("CurrentTailnet"))
    addresses = tuple(host for host in _texts(me.get("TailscaleIPs")) if _in_tailnet(host))
    if not addresses:
        raise NetworkError(
            "Tailscale runs, but this machine has no 100.64.0.0/10 address", "Look at `tailscale status`"
        )
    suffix = _text(tailnet.get("MagicDNSSuffix")) or _text(root.get("MagicDNSSuffix"))
    peers = (_peer(entry) for entry in _table(root.get("Peer")).values() if isinstance(entry, dict))
    return TailnetStatus(
        name=_text(tailnet.get("Name")),
        own_name=_text(me.get("DNSName")).rstrip(".") or _text(me.get("HostName")) or "this machine",
        suffix=suffix.strip(".").lower(),
        addresses=addresses,
        user_id=_number(me.get("UserID")),
        tags=_texts(me.get("Tags")),
        userspace=root.get("TUN") is False,
        health=_texts(root.get("Health")),
        peers=tuple(sorted(peers, key=lambda peer: (peer.dns_name, peer.address))),
    )


def _login_page(value: object) -> str:
    """Return the address where a person logs this machine in; empty when there is none to be shown."""
    page = _text(value)
    fits = page.startswith("https://") and page.isascii() and page.isprintable() and " " not in page
    return page if fits and len(page) <= LOGIN_PAGE_MAX else ""


def _check_running(state: str, health: tuple[str, ...], login_page: str) -> None:
    """Raise NetworkError unless the backend runs."""
    told = f" ({'; '.join(health)})" if health else ""
    match state:
        case "Running":
            return
        case "NeedsLogin":
            remedy = f"Open {login_page}" if login_page else "Run `tailscale up`"
            raise NetworkError(f"this machine needs a login: it is logged out of its tailnet{told}", remedy)
        case "NeedsMachineAuth":
            raise NetworkError(
                f"this machine waits to be approved{told}", "Approve it in the tailnet's admin console"
            )
        case "Stopped":
            raise NetworkError(f"Tailscale is stopped{told}", "Run `tailscale up`")
        case "Starting" | "NoState":
            raise NetworkError(f"Tailscale is still starting{told}")
        case _:
            raise NetworkError(f"Tailscale is in the state {state!r}{told}", "Look at `tailscale status`")


@dataclass(frozen=True, slots=True)
class DialPlan:
    """Whom to dial, and why so. ``passed_over``: a machine's name and why not, for doctor."""

    peers: tuple[TailnetPeer, ...]
    reason: str
    passed_over: tuple[tuple[str, str], ...]


def whom_to_dial(status: TailnetStatus, limit: int = DIAL_MAX) -> DialPlan:
    """Return the machines of the tailnet that may be nodes, at most ``limit``.

    Those with ``tag:daisychain`` when any machine (this one included) has the tag; else this user's own.
    """
    passed_over: list[tuple[str, str]] = []
    able: list[TailnetPeer] = []
    for peer in status.peers:
        why = _why_not_a_node(peer, status.suffix)
        if why:
            passed_over.append((peer.name or peer.dns_name, why))
        else:
            able.append(peer)
    tagged = TAG in status.tags or any(TAG in peer.tags for peer in status.peers)
    if tagged:
        chosen = [peer for peer in able if TAG in peer.tags]
        reason = f"machines with {TAG}"
        passed_over += [(peer.name, f"it has no {TAG}") for peer in able if TAG not in peer.tags]
    else:
        chosen = [peer for peer in able if peer.user_id == status.user_id]
        reason = "this user's own machines"
        passed_over += [(p.name, "it is another user's") for p in able if p.user_id != status.user_id]
    if len(chosen) > limit:
        passed_over += [(peer.name, f"more than {limit} machines") for peer in chosen[limit:]]
        reason += f", the first {limit} of {len(chosen)}; give the chain's own {TAG}"
    return DialPlan(tuple(chosen[:limit]), reason, tuple(passed_over))


def _why_not_a_node(peer: TailnetPeer, suffix: str) -> str:
    if peer.shared_in:
        return "it is shared in from another tailnet"
    if suffix and peer.dns_name and not peer.dns_name.lower().endswith("." + suffix):
        return "it belongs to another tailnet"
    if MULLVAD_TAG in peer.tags:
        return "it is a Mullvad exit node"
    if peer.system.lower() not in NODE_SYSTEMS:
        return f"no node runs on {peer.system or 'an unknown system'}"
    if peer.expired:
        return "its key has expired"
    if not peer.online:
        return "it is offline"
    if not peer.address:
        return "it has no IPv4 address in the tailnet"
    return ""


def slow_path(own_name: str, peer: TailnetPeer) -> str | None:
    """Return why the path from ``own_name`` to a peer is slow; None when nothing can be told or it is direct.

    An idle peer has no path yet: `tailscale ping` makes one.
    """
    if peer.direct_address or not peer.active:
        return None
    if peer.peer_relay:
        return f"{own_name} reaches {peer.name} over the peer relay {peer.peer_relay}"
    if peer.relay_region:
        return (
            f"{own_name} reaches {peer.name} over the DERP relay {peer.relay_region!r}, often 1 to 10 "
            "MB/s or less: open UDP port 41641 on one side for a direct path"
        )
    return None


def _peer(entry: dict[str, object]) -> TailnetPeer:
    return TailnetPeer(
        name=_text(entry.get("HostName")),
        dns_name=_text(entry.get("DNSName")).rstrip("."),
        system=_text(entry.get("OS")),
        address=next((host for host in _texts(entry.get("TailscaleIPs")) if _in_tailnet(host)), ""),
        user_id=_number(entry.get("UserID")),
        tags=_texts(entry.get("Tags")),
        online=entry.get("Online") is True,
        expired=entry.get("Expired") is True,
        shared_in=entry.get("ShareeNode") is True,
        active=entry.get("Active") is True,
        direct_address=_text(entry.get("CurAddr")),
        peer_relay=_text(entry.get("PeerRelay")),
        relay_region=_text(entry.get("Relay")),
    )


def _in_tailnet(host: str) -> bool:
    try:
        return ipaddress.ip_address(host) in TAILNET_RANGE
    except ValueError:
        return False


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def _table(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
