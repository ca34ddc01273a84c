"""What a DaisyChain node announces by mDNS, and what of a heard announcement may be believed: pure.

Anybody on the LAN can announce anything. What does not look exactly like a node's own announcement is
no neighbour; what does is still only an address to dial.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from daisychain.core.events import CandidateSeen
from daisychain.core.ids import Address, ClusterId, NodeId
from daisychain.net.discovery.sources import Announcement

SERVICE_TYPE = "_daisychain._tcp.local."

TEXT_BYTES_MAX = 400
"""Most bytes of an announcement's text: ours has about 90; stops large packets from being kept."""

ADDRESSES_MAX = 4
"""Most addresses taken of one announcement: stops it from aiming our dials at a whole network."""

_NODE_ID = re.compile(r"[0-9a-f]{32}")
_CLUSTER_ID = re.compile(r"[0-9a-f]{16}")
_VERSION = re.compile(r"[0-9A-Za-z.+-]{1,32}")


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A plausible announcement: who claims to be where."""

    node_id: NodeId
    cluster_id: ClusterId
    version: str
    addresses: tuple[Address, ...]

    def candidates(self) -> tuple[CandidateSeen, ...]:
        """Return what discovery hands on: one candidate an address."""
        return tuple(
            CandidateSeen("mdns", address, self.node_id, self.cluster_id) for address in self.addresses
        )


def service_name(node_id: NodeId) -> str:
    """Return the name under which a node announces itself."""
    return f"{node_id}.{SERVICE_TYPE}"


def node_of(name: str) -> NodeId | None:
    """Return the node that a service's name claims; None when no node would use that name."""
    label = name.removesuffix("." + SERVICE_TYPE)
    return NodeId(label) if _NODE_ID.fullmatch(label) else None


def text_of(announcement: Announcement) -> dict[str, str]:
    """Return the announcement's TXT entries."""
    return {
        "cluster": announcement.cluster_id,
        "node": announcement.node_id,
        "version": announcement.version,
    }


def read_neighbour(
    name: str,
    hosts: Sequence[str],
    port: int | None,
    text: Mapping[bytes, bytes | None],
    on_link: Callable[[str], bool],
) -> Neighbour | str:
    """Return the neighbour that an announcement describes, or why it is not believed.

    ``on_link`` tells whether an address belongs to the chosen interface's network: the mDNS socket
    also hears other interfaces on which any process of this machine joined the group, and nobody
    there could be reached over the address that we train over.
    """
    node_id = node_of(name)
    if node_id is None:
        return "its name is not a node id"
    if sum(len(key) + len(value or b"") + 2 for key, value in text.items()) > TEXT_BYTES_MAX:
        return f"its text is longer than {TEXT_BYTES_MAX} bytes"
    values = {key: (text.get(key.encode()) or b"").decode("ascii", "replace") for key in TEXT_KEYS}
    if values["node"] != node_id:
        return "its text claims another node id than its name"
    if not _CLUSTER_ID.fullmatch(values["cluster"]):
        return "it tells no cluster id"
    if not _VERSION.fullmatch(values["version"]):
        return "it tells no version"
    if port is None or not 0 < port < 65536:
        return "it tells no port"
    here = [host for host in hosts if on_link(host)][:ADDRESSES_MAX]
    if not here:
        return f"its address {', '.join(hosts[:ADDRESSES_MAX])} is not on this interface's network"
    addresses = tuple(Address(host, port) for host in here)
    return Neighbour(node_id, ClusterId(values["cluster"]), values["version"], addresses)


TEXT_KEYS = ("cluster", "node", "version")
"""The keys of an announcement's text; others are ignored, so that later versions may add some."""
