"""Whether links come over the interface that gloo will bind."""

from __future__ import annotations

import logging
from collections.abc import Callable

from daisychain.core.events import Event, LinkUp
from daisychain.net.interface_choice import InterfaceChoice, why_not_proven

log = logging.getLogger("daisychain.agent")


class InterfaceProof:
    """Looks at every new link on its way to the machine.

    Attributes:
        unproven: why the choice is doubtful, of the newest link; empty while it is not.
    """

    def __init__(self, choice: InterfaceChoice, post: Callable[[Event], None]) -> None:
        self._choice = choice
        self._post = post
        self.unproven = ""

    def post(self, event: Event) -> None:
        """Hand ``event`` on; say so when a peer was reached over another address than the chosen one."""
        if isinstance(event, LinkUp):
            unproven = why_not_proven(self._choice, event.local_host) or ""
            if unproven and unproven != self.unproven:
                log.warning("%s", unproven)
            self.unproven = unproven
        self._post(event)
