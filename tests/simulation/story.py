"""The story of one simulated chain: what happened when, printed when something goes wrong."""

from __future__ import annotations

from collections import deque


class Story:
    """The newest lines of what happened."""

    def __init__(self, most: int = 400) -> None:
        self._lines: deque[tuple[float, str]] = deque(maxlen=most)

    def add(self, now: float, line: str) -> None:
        """Write a line."""
        self._lines.append((now, line))

    def text(self) -> str:
        """Return it all."""
        return "\n".join(f"{now:9.4f}  {line}" for now, line in self._lines)


class Violation(AssertionError):
    """The chain broke a promise; carries the seed and the story."""
