"""Whether the chain lost or repeated anything over all trials: its audit, and the model's own counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from bench.steps import StepLine
from daisychain.trainer.engine.sampler import order


@dataclass(frozen=True)
class Losses:
    """What went wrong; all zero when nothing did."""

    steps_lost: int
    samples_lost: int
    samples_repeated: int


class Seen:
    """What one node held committed in its present life: none of it may vanish, or be done again.

    Attributes:
        lost: steps that did.
    """

    def __init__(self) -> None:
        self.lost: set[int] = set()
        self._worlds: dict[int, str] = {}

    def restarted(self) -> None:
        """The node died: its next life begins with what the others hold."""
        self._worlds.clear()

    def look(self, steps: Sequence[StepLine]) -> None:
        """Compare the newest steps of its record with what it held before."""
        newest = steps[-1].step if steps else 0
        self.lost |= {step for step in self._worlds if step > newest}
        for line in steps:
            if self._worlds.setdefault(line.step, line.world) != line.world:
                self.lost.add(line.step)


def visits(model: Path, seed: int, batch: int, steps: int) -> tuple[int, int]:
    """Return how many samples the model in ``model`` has not seen, and seen too often, in ``steps`` steps."""
    counts = load_file(model)["counts"].astype(np.float64)
    wanted = expected_visits(len(counts), seed, batch, steps)
    return int(np.maximum(0, wanted - counts).sum()), int(np.maximum(0, counts - wanted).sum())


def expected_visits(samples: int, seed: int, batch: int, steps: int) -> NDArray[np.float64]:
    """Return how often each sample belongs to the first ``steps`` batches (``batch`` divides ``samples``)."""
    epochs, rest = divmod(steps, samples // batch)
    wanted = np.full(samples, float(epochs))
    wanted[order(seed, epochs, samples)[: rest * batch]] += 1
    return wanted
