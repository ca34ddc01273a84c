"""A job ready to be trained: what both kinds (table, python) turn into, and all the loop knows of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from daisychain.core.job_spec import JobSpec

Batch = Any
"""What a split's ``batch`` makes and ``loss`` and ``metrics`` take: the user's own affair."""


class Samples(Protocol):
    """One split of the data, addressed by sample number."""

    def __len__(self) -> int:
        """The number of samples."""

    def batch(self, indices: Sequence[int], epoch: int) -> Batch:
        """Return the collated samples, on the model's device.

        Random augmentation is seeded by (job seed, ``epoch``, sample number) alone, so a sample looks the
        same whichever node takes it.
        """


@dataclass(frozen=True, slots=True)
class LossSum:
    """A loss as the exact gradient needs it: ``sum / weight`` is the mean.

    Attributes:
        sum: scalar tensor, differentiable: the sum of the samples' (weighted) losses.
        weight: the sum of the samples' weights (their number when unweighted).
    """

    sum: torch.Tensor
    weight: float


@dataclass(slots=True)
class LoadedJob:
    """The user's job in memory.

    Attributes:
        spec: what job.yaml says.
        model: on its device, in the job's dtype, initialised from the job's seed.
        train: the training split; len >= 1.
        validation: the held-out split; None when there is none.
        loss: (model, batch) -> LossSum.
        metrics: (model, batch) -> name -> (sum, count), for evaluations; besides the loss.
        finish_metrics: turns the reduced means (sum / count by name) into what is reported, e.g. a mean
            square into its root.
        optimizer: over the model's parameters.
        schedule: stepped once after every committed step; one that waits for a plateau after every
            committed evaluation instead, with the held-out loss. None when there is none.
        needs_granules: the model has batch norm or dropout, or the job is reproducible; `engine.checks` turns
            it on, too, where forward draws random numbers or the loss compares samples.
        export: writes the trained model and what is needed to use it into a folder
            (``model.safetensors``, and for a table its encoding in the file's metadata).
        locate: tells ``file:line`` of the job's own code that an exception came through; empty: none did.
        holds: what must stay while the job is trained (a converted table's files).
        notes: what was noticed while loading (rows without a target, constant columns, ...).
    """

    spec: JobSpec
    model: nn.Module
    train: Samples
    validation: Samples | None
    loss: Callable[[nn.Module, Batch], LossSum]
    metrics: Callable[[nn.Module, Batch], Mapping[str, tuple[float, float]]]
    optimizer: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler | None
    needs_granules: bool
    export: Callable[[str], None]
    locate: Callable[[BaseException], str] = lambda _: ""
    holds: object = None
    notes: tuple[str, ...] = ()
    finish_metrics: Callable[[Mapping[str, float]], Mapping[str, float]] = dict
