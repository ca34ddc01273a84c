"""Which chains are to be seen from a machine that has no key yet."""

from __future__ import annotations

from daisychain.core.ids import ClusterId
from daisychain.errors import NetworkError
from daisychain.net.discovery.mdns_check import check_mdns
from daisychain.net.interface_choice import Network, choose_interface
from daisychain.net.interfaces import default_route_address, list_interfaces


async def look_around(interface: str | None = None) -> dict[ClusterId, int] | str:
    """Return how many nodes of which clusters announce themselves on the LAN; a text says why nobody looked.

    Takes about three seconds, at most ten. ``interface``: a name or an address; None = chosen.
    """
    network = Network.AUTO if interface else Network.LAN
    try:
        choice = choose_interface(list_interfaces(), interface, network, default_route_address())
        finding = await check_mdns(choice)
    except NetworkError as error:
        return error.message
    seen: dict[ClusterId, int] = {}
    for neighbour in finding.neighbours:
        seen[neighbour.cluster_id] = seen.get(neighbour.cluster_id, 0) + 1
    return seen


def foreign_chain(seen: dict[ClusterId, int]) -> str:
    """Return for people which chains were seen."""
    chains = ", ".join(
        f"{cluster} ({count} node{'s' * (count > 1)})" for cluster, count in sorted(seen.items())
    )
    return f"a chain is here already: cluster {chains}; a new key would found another one beside it"
