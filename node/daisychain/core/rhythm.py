"""How regularly a peer is heard, and so how long its silence may last before it means death."""

from __future__ import annotations

from dataclasses import dataclass

from daisychain.core.settings import CoreSettings

_WEIGHT = 0.1


@dataclass(slots=True)
class Rhythm:
    """Running mean and mean deviation of the time between two messages of one peer, in seconds.

    An estimator in the manner of TCP's retransmission timer (RFC 6298): cheap, and it follows a
    link that becomes slow within some ten messages.
    """

    mean_s: float = 0.3
    deviation_s: float = 0.1

    def add(self, interval_s: float) -> None:
        """Take in the time between the last two messages."""
        error = interval_s - self.mean_s
        self.mean_s += _WEIGHT * error
        self.deviation_s += _WEIGHT * (abs(error) - self.deviation_s)

    def limit_s(self, settings: CoreSettings) -> float:
        """Return how long a silence may last before the peer counts as dead."""
        adaptive_s = self.mean_s + settings.silence_deviations * self.deviation_s
        return min(settings.silence_ceiling_s, max(settings.silence_floor_s, adaptive_s))
