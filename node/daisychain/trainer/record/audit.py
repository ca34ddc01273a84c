"""The audit: what a run's record says was done, against what the job's sampler says must be done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Protocol

import msgspec

from daisychain.trainer.record.journal import Line, StepLine


class Timeline(Protocol):
    """What a run must do, step by step; a function of the job alone."""

    @property
    def steps(self) -> int:
        """Training steps of the whole run."""

    def samples(self, step: int) -> int:
        """Samples in the global batch of ``step``, 1 <= step <= steps."""


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
    """Return the audit of a record.

    ``ended_at_step``: where an early stop or a cancel ended the run; None = it was to run to the end.
    """
    steps = timeline.steps if ended_at_step is None else min(ended_at_step, timeline.steps)
    found: Counter[int] = Counter()
    seen: set[int] = set()
    worlds = _Worlds()
    for line in lines:
        if isinstance(line, StepLine):
            found[line.step] += line.samples
            seen.add(line.step)
            worlds.add(line)
    expected = {step: timeline.samples(step) for step in range(1, steps + 1)}
    return Audit(
        steps_expected=steps,
        steps_committed=len(seen),
        samples_expected=sum(expected.values()),
        samples_committed=sum(found.values()),
        samples_lost=sum(max(0, want - found[step]) for step, want in expected.items()),
        samples_repeated=sum(max(0, have - expected.get(step, 0)) for step, have in found.items()),
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
