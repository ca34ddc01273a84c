"""How regularly a peer is heard, and so how long its silence may last before it means death."""

from __future__ import annotations

from dataclasses import dataclass

from daisychain.core.settings import CoreSettings


@dataclass(slots=True)
class Rhythm:
    """The longest silence of one peer of late, in seconds; halved by every `rhythm_half_life_s` that pass.

    A queue that fills with a gradient holds up one message for seconds and then lets a dozen go at once. An
    average over messages forgets such a silence with the very burst that ends it; the longest one stays.
    """

    longest_s: float = 0.0

    def add(self, interval_s: float, settings: CoreSettings) -> None:
        """Take in the time between the last two messages."""
        self.longest_s *= 0.5 ** (interval_s / settings.rhythm_half_life_s)
        self.longest_s = max(self.longest_s, interval_s)

    def limit_s(self, settings: CoreSettings) -> float:
        """Return how long a silence may last before the peer counts as dead."""
        patience_s = settings.silence_factor * self.longest_s
        return min(settings.silence_ceiling_s, max(settings.silence_floor_s, patience_s))
