"""How fast the chain's run goes, from the steps that were seen committed: what is left follows from it."""

from __future__ import annotations

from collections import deque

from daisychain.core.ids import RunId

WINDOW_S = 30.0
"""What is older says nothing of the present world."""

LEAST_S = 3.0
"""Steps of a shorter time say nothing yet."""

MARK_S = 1.0
"""Between two marks: bounds how many there are."""


class Pace:
    """The steps of one run, with when they were seen."""

    def __init__(self) -> None:
        self._run: RunId | None = None
        self._marks: deque[tuple[float, int]] = deque(maxlen=int(WINDOW_S / MARK_S) + 1)

    def seen(self, run_id: RunId, step: int, now: float) -> None:
        """The run has committed ``step`` steps by ``now``; what was seen of another run is forgotten."""
        if run_id != self._run:
            self._run = run_id
            self._marks.clear()
        if not self._marks or now >= self._marks[-1][0] + MARK_S:
            self._marks.append((now, step))

    def steps_per_s(self, run_id: RunId, step: int, now: float) -> float | None:
        """Return the run's steps a second over the last WINDOW_S; None when they are not known, or none."""
        if run_id != self._run:
            return None
        while self._marks and self._marks[0][0] < now - WINDOW_S:
            self._marks.popleft()
        if not self._marks:
            return None
        at, before = self._marks[0]
        return (step - before) / (now - at) if now >= at + LEAST_S and step > before else None
