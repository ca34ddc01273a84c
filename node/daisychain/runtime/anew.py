"""What makes a running agent begin anew: its address is gone, or another machine holds its node id."""

from __future__ import annotations

import asyncio

from daisychain.core.node import NodeInfo
from daisychain.host.state_folder import StateFolder
from daisychain.net.identity.node_identity import gives_way
from daisychain.net.interface_choice import InterfaceChoice, why_gone
from daisychain.net.interfaces import list_interfaces
from daisychain.runtime.remember import take_new_id

INTERFACE_CHECK_S = 5.0
"""How often the agent looks whether its address is still there (a laptop changes its network)."""


class BeginAnew(Exception):
    """The agent must be built again; its text says why."""


class Anew:
    """The first reason to begin anew, and those who look for one.

    Attributes:
        reason: done as soon as there is one.
    """

    def __init__(self) -> None:
        """Needs a running event loop."""
        self.reason: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def because(self, reason: str) -> None:
        """Begin anew for this reason, unless there is one already."""
        if not self.reason.done():
            self.reason.set_result(reason)

    async def watch_address(self, choice: InterfaceChoice) -> None:
        """Notice that the chosen address is gone or has moved (another WiFi, a container's new network)."""
        while True:
            await asyncio.sleep(INTERFACE_CHECK_S)
            gone = why_gone(choice, await asyncio.to_thread(list_interfaces))
            if gone is not None:
                self.because(gone)

    def met_clone(self, state: StateFolder, mine: NodeInfo, theirs: NodeInfo | None) -> None:
        """Another machine has our node id: exactly one of the two takes a new one.

        ``theirs`` is None when only its key was seen; then we are the one.
        """
        if self.reason.done() or not (theirs is None or gives_way(mine, theirs)):
            return
        take_new_id(state)
        named = "another machine" if theirs is None else f"{theirs.name} at {theirs.address}"
        self.because(f"{named} has the same node id (a copied state folder); this node took a new one")
