"""What was refused, told once a source a minute and never more than memory or a log can bear."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

INTERVAL_S = 60.0
"""A source is told of once in this time; a flood of garbage must not fill the disk with log lines."""

SOURCES_MAX = 256
"""Sources remembered: an attacker with many addresses (IPv6) must not grow our memory."""

LINES_MAX = 60
"""Lines written in one interval over all sources: nor fill the log from many addresses."""


@dataclass(slots=True)
class _Told:
    at: float
    untold: int = 0


class RefusalLog:
    """Writes ``refused SOURCE: REASON`` once a source a minute, with the number left out meanwhile."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._write = write
        self._clock = clock
        self._sources: OrderedDict[str, _Told] = OrderedDict()
        self._window_at = clock()
        self._lines = 0
        self.total = 0
        """Refusals since the start, told or not."""

    def refuse(self, source: str, reason: str) -> None:
        """Count a refusal of ``source`` (an IP address), and tell of it when its minute has passed."""
        now = self._clock()
        self.total += 1
        told = self._sources.get(source)
        if told is not None and now - told.at < INTERVAL_S:
            told.untold += 1
            return
        if now - self._window_at >= INTERVAL_S:
            self._window_at, self._lines = now, 0
        if self._lines >= LINES_MAX:
            return
        self._lines += 1
        left_out = f" (and {told.untold} more since the last line)" if told and told.untold else ""
        self._sources[source] = _Told(now)
        self._sources.move_to_end(source)
        while len(self._sources) > SOURCES_MAX:
            self._sources.popitem(last=False)
        self._write(f"refused {source}: {printable(reason)}{left_out}")


def printable(text: str, limit: int = 200) -> str:
    """Return ``text`` without control characters and cut to ``limit``: it may come from a stranger."""
    clean = "".join(c if c.isprintable() else "?" for c in text[: limit + 1])
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"
