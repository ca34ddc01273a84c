"""Members that held up a formation wait before they are asked again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from daisychain.core.ids import NodeId
from daisychain.core.settings import CoreSettings


@dataclass(slots=True)
class _Strike:
    count: int
    until: float


class Exclusions:
    """Who is left out for now; each further strike doubles the wait, a formed world wipes them out."""

    def __init__(self, settings: CoreSettings) -> None:
        self._settings = settings
        self._strikes: dict[NodeId, _Strike] = {}

    def add(self, node_id: NodeId, now: float) -> None:
        """Leave a node out."""
        strike = self._strikes.setdefault(node_id, _Strike(0, now))
        wait_s = min(
            self._settings.exclusion_max_s, self._settings.exclusion_s * 2.0 ** min(strike.count, 16)
        )
        strike.count += 1
        strike.until = now + wait_s

    def forgive(self, node_ids: Iterable[NodeId]) -> None:
        """Forget the strikes of nodes that entered a world."""
        for node_id in node_ids:
            self._strikes.pop(node_id, None)

    def now(self, now: float) -> frozenset[NodeId]:
        """Return who is left out now."""
        return frozenset(node_id for node_id, strike in self._strikes.items() if now < strike.until)

    def deadline(self, now: float) -> float | None:
        """Return when the next one gets another try."""
        return min((strike.until for strike in self._strikes.values() if now < strike.until), default=None)

    def clear(self) -> None:
        """Forget everything."""
        self._strikes.clear()
