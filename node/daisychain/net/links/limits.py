"""How much of us one source may take before it has proven who it is, and one link after that."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass

SOURCES_MAX = 1024
"""Sources whose rate is remembered; the longest unseen are forgotten first."""


class TokenBucket:
    """Lets ``rate`` units a second pass, and ``burst`` at once."""

    __slots__ = ("_at", "_burst", "_level", "_rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._level = burst
        self._at = now

    def take(self, amount: float, now: float) -> float:
        """Take ``amount``; return the seconds to wait before going on (0.0 when within the rate)."""
        self._level = min(self._burst, self._level + (now - self._at) * self._rate) - amount
        self._at = now
        return max(0.0, -self._level / self._rate)

    def try_take(self, amount: float, now: float) -> bool:
        """Take ``amount`` if it is there; return whether it was."""
        self._level = min(self._burst, self._level + (now - self._at) * self._rate)
        self._at = now
        if self._level < amount:
            return False
        self._level -= amount
        return True


@dataclass(frozen=True, slots=True)
class GateSettings:
    """What connections that have not yet proven a node id may take.

    Attributes:
        pending_max: such connections in all; each costs a socket and a TLS state (320 KB measured),
            so half-open connections from many addresses end at 20 MB.
        pending_per_source: such connections from one IP address; one address cannot take all places.
            Sixteen nodes behind one address that all start together still fit.
        attempts_per_source_per_s: connections an address may open a second, on average; a loop
            of connect and garbage must not cost us a handshake each (about 1 ms).
        attempts_burst: how many of them at once: a chain behind one address that dials back.
    """

    pending_max: int = 64
    pending_per_source: int = 24
    attempts_per_source_per_s: float = 10.0
    attempts_burst: float = 100.0


class Gate:
    """Decides at accept, before any byte is read, whether a connection may go on to its handshake."""

    def __init__(self, settings: GateSettings) -> None:
        self._settings = settings
        self._pending: Counter[str] = Counter()
        self._attempts: OrderedDict[str, TokenBucket] = OrderedDict()

    @property
    def pending(self) -> int:
        """Connections that are let in and have not proven who they are."""
        return self._pending.total()

    def enter(self, source: str, now: float) -> str | None:
        """Take a place for ``source``; return None, or why there is none. Give it back by `leave`."""
        settings = self._settings
        bucket = self._attempts.get(source)
        if bucket is None:
            bucket = TokenBucket(settings.attempts_per_source_per_s, settings.attempts_burst, now)
            self._attempts[source] = bucket
            if len(self._attempts) > SOURCES_MAX:
                self._attempts.popitem(last=False)
        self._attempts.move_to_end(source)
        if not bucket.try_take(1.0, now):
            return f"more than {settings.attempts_per_source_per_s:g} connections a second"
        if self._pending[source] >= settings.pending_per_source:
            return f"more than {settings.pending_per_source} connections that prove no node id"
        if self.pending >= settings.pending_max:
            return f"{settings.pending_max} connections already wait to prove who they are"
        self._pending[source] += 1
        return None

    def leave(self, source: str) -> None:
        """Give back a place that `enter` gave."""
        self._pending[source] -= 1
        if self._pending[source] <= 0:
            del self._pending[source]
