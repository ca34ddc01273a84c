"""Who was seen and not admitted, with the reason: for people, never for decisions."""

from __future__ import annotations

from daisychain.core.events import CandidateSeen
from daisychain.core.ids import Address, ClusterId
from daisychain.core.view import StrangerView


class Strangers:
    """The newest strangers, at most ``most``."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._views: dict[Address, StrangerView] = {}

    def add(self, address: Address, source: str, reason: str) -> bool:
        """Remember a stranger; return whether it is news."""
        known = self._views.pop(address, None)
        self._views[address] = StrangerView(address, source, reason)
        if len(self._views) > self._most:
            del self._views[next(iter(self._views))]
        return known is None or known.reason != reason

    def drop(self, address: Address) -> None:
        """It was admitted after all."""
        self._views.pop(address, None)

    def all(self) -> tuple[StrangerView, ...]:
        """Return them, the newest last."""
        return tuple(self._views.values())


def foreign(seen: CandidateSeen, ours: ClusterId) -> str:
    """Return why a neighbour is none of ours, with what would join it; empty when it may be ours."""
    if seen.cluster_id is None or seen.cluster_id == ours:
        return ""
    return (
        f"a node of another cluster ({seen.cluster_id}; ours is {ours}). To join it, take its key, "
        "shown there by `daisychain key show`, and run `daisychain key join` here"
    )
