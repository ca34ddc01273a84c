"""The held-out loss and metrics, summed exactly over the ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch

from daisychain.errors import JobError
from daisychain.trainer.engine.backoff import within_memory
from daisychain.trainer.engine.compute import Computer
from daisychain.trainer.engine.exchange import Exchange
from daisychain.trainer.engine.faults import NOT_FINITE_REMEDY, blame, job_file, user_code
from daisychain.trainer.engine.modes import modes, restore_modes
from daisychain.trainer.engine.randomness import seed_all
from daisychain.trainer.engine.sampler import granule_seed, own_units
from daisychain.trainer.engine.tail import LIMBS, ExactSum, value_of
from daisychain.trainer.jobs.loaded import LoadedJob, Samples

EVALUATION = -1
"""In the place of a step in the seeds of an evaluation's granules: each evaluation draws the same."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What the held-out data says of the model, the same on every rank.

    Attributes:
        loss: mean over the weight.
        metrics: name -> mean.
        samples: held-out samples; 0 when there are none (then ``loss`` is 0 and ``metrics`` empty).
    """

    loss: float
    metrics: dict[str, float]
    samples: int


class Evaluator:
    """Evaluates a job's validation split, cut into the same units as the training batch."""

    def __init__(self, computer: Computer) -> None:
        self._computer = computer
        self._names: tuple[str, ...] | None = None

    @property
    def _job(self) -> LoadedJob:
        return self._computer.job

    def units(self) -> int:
        """Return the units of the whole split: granules, or samples where the job has none."""
        validation = self._job.validation
        return 0 if validation is None or len(validation) == 0 else self._computer.units(len(validation))

    def evaluate(self, exchange: Exchange, shares: tuple[int, ...]) -> Evaluation:
        """Return the evaluation, each rank taking its share of the units; the model stays as it is.

        Raises `WorldError` when the world breaks or another rank's part is at fault (then it is redone
        whole), and `JobError` when this one's is.
        """
        validation = self._job.validation
        if validation is None or len(validation) == 0:
            return Evaluation(0.0, {}, 0)
        kept = modes(self._job.model)
        try:
            with torch.no_grad(), user_code(self._job, "in the evaluation"):
                self._job.model.eval()
                names = self._metric_names(validation)
                units = own_units(shares, exchange.rank)
                vector = within_memory(self._computer, lambda: self._own(validation, units, names))
        finally:
            restore_modes(kept)
        own = vector.tolist()
        exchange.sum(vector).wait()
        return self._read(vector.tolist(), own, names)

    def _metric_names(self, validation: Samples) -> tuple[str, ...]:
        # Every rank asks the same sample, so that one without a share knows the names too.
        if self._names is None:
            batch = validation.batch([0], 0)
            self._names = tuple(sorted(self._job.metrics(self._job.model, batch)))
        return self._names

    def _own(self, validation: Samples, units: range, names: tuple[str, ...]) -> torch.Tensor:
        job = self._job
        loss, weight, samples = ExactSum(), ExactSum(), 0
        sums = {name: (ExactSum(), ExactSum()) for name in names}
        for piece in self._computer.pieces(len(validation), units):
            if job.needs_granules:  # a loss may draw random numbers in evaluation too
                seed_all(granule_seed(job.spec.seed, EVALUATION, piece.index))
            batch = validation.batch(cast(Sequence[int], np.arange(piece.start, piece.stop)), 0)
            part = job.loss(job.model, batch)
            loss.add(part.sum.item())
            weight.add(float(part.weight))
            samples += piece.samples
            metrics = job.metrics(job.model, batch)
            if set(metrics) != set(names):
                raise JobError(
                    job_file(job),
                    f"metrics() gave {sorted(metrics)} for one batch and {sorted(names)} for another",
                    "Return the same names for every batch",
                )
            for name, (total, count) in metrics.items():
                sums[name][0].add(float(total))
                sums[name][1].add(float(count))
        flat = [loss, weight, *(each for name in names for each in sums[name])]
        numbers = [samples, *(limb for each in flat for limb in each.limbs())]
        return torch.tensor([*numbers, *(int(not each.finite) for each in flat)], dtype=torch.int64)

    def _read(self, numbers: list[int], own: list[int], names: tuple[str, ...]) -> Evaluation:
        """Return what the sums over all ranks say; ``own``: what this rank put in."""
        count = 2 + 2 * len(names)
        labels = ["the loss", "the loss's weight", *(f"metric {name}" for name in names for _ in range(2))]
        for told in (own, numbers):  # what is broken here comes first
            for label, flag in zip(labels, told[1 + LIMBS * count :], strict=True):
                if flag:
                    message = f"{label} is NaN or infinite on the held-out data"
                    raise blame(told is own, JobError(job_file(self._job), message, NOT_FINITE_REMEDY))
        found = [value_of(numbers[1 + LIMBS * index : 1 + LIMBS * (index + 1)]) for index in range(count)]
        means = {name: _mean(*found[2 + 2 * index : 4 + 2 * index]) for index, name in enumerate(names)}
        return Evaluation(_mean(found[0], found[1]), means, numbers[0])


def _mean(total: float, count: float) -> float:
    return total / count if count else math.nan
