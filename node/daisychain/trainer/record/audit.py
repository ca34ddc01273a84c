"""The audit: what a run's record says was done, against what the job's sampler says must be done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

import msgspec

from daisychain.trainer.engine.timeline import Timeline
from daisychain.trainer.record.journal import Line, StepLine


class WorldSpan(msgspec.Struct, frozen=True):
    """A stretch of steps committed by one world.

    Attributes:
        generation, size, coordinator: of the world, see `journal.WorldInfo`.
        first_step, last_step: the steps it committed.
        first_shares, last_shares: units a rank, at its beginning and at its end.
        pause_s: seconds from the commit before it to its own first commit, less that step's own
            seconds; 0 for the first world.
    """

    generation: str
    size: int
    coordinator: str
    first_step: int
    last_step: int
    first_shares: tuple[int, ...]
    last_shares: tuple[int, ...]
    pause_s: float


class Audit(msgspec.Struct, frozen=True):
    """Whether every sample was counted once an epoch.

    Attributes:
        steps_expected: by the sampler, up to the step where the run ended.
        steps_committed: distinct steps in the record.
        samples_expected, samples_committed: likewise.
        samples_lost: expected and in no line.
        samples_repeated: in the record beyond what was expected.
        coordinator_changes: how often a world had another coordinator than the one before.
        worlds: in order.
    """

    steps_expected: int
    steps_committed: int
    samples_expected: int
    samples_committed: int
    samples_lost: int
    samples_repeated: int
    coordinator_changes: int
    worlds: tuple[WorldSpan, ...]

    @property
    def clean(self) -> bool:
        """Whether nothing was lost and nothing done twice."""
        return self.samples_lost == 0 and self.samples_repeated == 0


def audit(lines: Iterable[Line], timeline: Timeline, ended_at_step: int | None = None) -> Audit:
    """Return the audit of a record; ``lines`` are looked at one by one and not kept.

    ``ended_at_step``: where an early stop or a cancel ended the run; None = it was to run to the end.
    """
    steps = timeline.steps if ended_at_step is None else min(ended_at_step, timeline.steps)
    found: Counter[int] = Counter()
    worlds = _Worlds()
    for line in lines:
        if isinstance(line, StepLine):
            found[line.step] += line.samples
            worlds.add(line)
    # Step 1 of the record is the one at position 0: the step that follows no committed one.
    expected, lost, repeated = 0, 0, 0
    for step in range(1, steps + 1):
        want = timeline.position(step - 1).samples
        expected += want
        lost += max(0, want - found[step])
        repeated += max(0, found[step] - want)
    repeated += sum(have for step, have in found.items() if not 1 <= step <= steps)
    return Audit(
        steps_expected=steps,
        steps_committed=len(found),
        samples_expected=expected,
        samples_committed=sum(found.values()),
        samples_lost=lost,
        samples_repeated=repeated,
        coordinator_changes=worlds.coordinator_changes(),
        worlds=tuple(worlds.spans),
    )


class _Worlds:
    """Gathers consecutive steps of one world into spans."""

    def __init__(self) -> None:
        self.spans: list[WorldSpan] = []
        self._last_at: float | None = None

    def add(self, line: StepLine) -> None:
        """Take the next step of the record."""
        world = line.world
        if self.spans and self.spans[-1].generation == world.generation:
            self.spans[-1] = msgspec.structs.replace(
                self.spans[-1], last_step=line.step, last_shares=world.shares
            )
        else:
            pause_s = 0.0 if self._last_at is None else max(0.0, line.at - self._last_at - line.step_s)
            self.spans.append(
                WorldSpan(
                    generation=world.generation,
                    size=world.size,
                    coordinator=world.coordinator,
                    first_step=line.step,
                    last_step=line.step,
                    first_shares=world.shares,
                    last_shares=world.shares,
                    pause_s=pause_s,
                )
            )
        self._last_at = line.at

    def coordinator_changes(self) -> int:
        """Return how often consecutive worlds differ in their coordinator."""
        names = [span.coordinator for span in self.spans]
        return sum(before != after for before, after in pairwise(names))
