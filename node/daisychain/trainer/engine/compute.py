"""Forward and backward of one rank's part of a step: gradients in ``.grad``, sums, batch-norm rows.

Nothing here changes the model, the optimizer or the state of training; what a step leaves in ``.grad`` is
the caller's to take and to clear.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.hooks import RemovableHandle

from daisychain.trainer.engine import granules, sampler
from daisychain.trainer.engine.buffers import FixedBuffers
from daisychain.trainer.engine.faults import job_file
from daisychain.trainer.engine.gradients import Layout, clear
from daisychain.trainer.engine.granules import Piece
from daisychain.trainer.engine.norms import Norms
from daisychain.trainer.engine.randomness import seed_all
from daisychain.trainer.engine.tail import Sums
from daisychain.trainer.engine.timeline import StepPosition, Timeline
from daisychain.trainer.jobs.loaded import LoadedJob

MICRO_BATCH = 1024
"""Most samples of one forward, whatever the memory; a greater share is taken in several."""


@dataclass(slots=True)
class Computed:
    """One rank's part of a step.

    Attributes:
        sums: for the tail.
        rows: batch-norm statistics, one row for each granule of the batch; zeros where not ours.
    """

    sums: Sums
    rows: torch.Tensor


class Computer:
    """The job's model and data, as one rank computes with them.

    Attributes:
        layout: the trained parameters.
        norms: the batch-norm layers.
        largest: most samples of one micro-batch, without granules.
    """

    def __init__(self, job: LoadedJob, timeline: Timeline) -> None:
        self.job = job
        self.timeline = timeline
        self.layout = Layout(job.model, job_file(job))
        self.norms = Norms(job.model, job_file(job))
        self.largest = MICRO_BATCH
        self._taken = MICRO_BATCH
        self._on_ready: Callable[[int], None] | None = None
        self._last_piece = False
        self._hooks: list[RemovableHandle] = []
        self._orders: dict[int, NDArray[np.int64]] = {}
        self._scale: torch.Tensor | None = None
        self._scaled_for = 0
        self._no_rows = self.norms.rows(0)
        self._fixed = FixedBuffers(job.model, self.norms.names(), job_file(job))

    def listen(self, on_ready: Callable[[int], None] | None) -> None:
        """Have ``on_ready`` called from backward of a share's *last* piece, as each gradient is complete.

        It gets the parameter's number. None = nobody listens.
        """
        self._on_ready = on_ready
        if on_ready is not None and not self._hooks:
            self._hooks = [
                parameter.register_post_accumulate_grad_hook(self._hook(index))  # type: ignore[no-untyped-call]
                for index, parameter in enumerate(self.layout.parameters)
            ]

    def unhook(self) -> None:
        """Listen to nobody from now on: in a world of one backward need not pay for the hooks."""
        self._on_ready = None
        for handle in self._hooks:
            handle.remove()
        self._hooks = []

    def _hook(self, index: int) -> Callable[[torch.Tensor], None]:
        def hook(_: torch.Tensor) -> None:
            if self._last_piece and self._on_ready is not None:
                self._on_ready(index)

        return hook

    def units(self, samples: int) -> int:
        """Return the units of a batch of ``samples``: granules, or samples where the job has none."""
        return granules.count(samples, self.job.spec.granule) if self.job.needs_granules else samples

    def pieces(self, samples: int, units: range) -> tuple[Piece, ...]:
        """Return what is computed for ``units`` of a batch of ``samples``."""
        if self.job.needs_granules:
            return granules.pieces(samples, self.job.spec.granule, units)
        cut = granules.micro_batches(units, self.largest)
        self._taken = max((piece.samples for piece in cut), default=1)
        return cut

    def shrink(self) -> bool:
        """Halve the largest micro-batch that the last work was cut into; False when it cannot be smaller."""
        if self.job.needs_granules or self._taken <= 1:
            return False
        self.largest = self._taken // 2
        return True

    def indices(self, position: StepPosition, piece: Piece) -> Sequence[int]:
        """Return the sample numbers of ``piece``."""
        order = self._orders.get(position.epoch)
        if order is None:
            order = sampler.order(self.job.spec.seed, position.epoch, self.timeline.samples)
            self._orders = {position.epoch: order}
        # An array serves as a sequence of numbers, and becomes a tensor without a copy.
        return cast(Sequence[int], order[position.start + piece.start : position.start + piece.stop])

    def compute(
        self,
        position: StepPosition,
        units: range,
        after_piece: Callable[[Sequence[torch.Tensor | None], Sums], None] | None = None,
    ) -> Computed:
        """Run forward and backward of ``units`` of the step's batch.

        The gradient is that of the loss *sum* divided by the number of samples of the global batch: right at
        once for unweighted losses, and corrected by the reduced weight at the commit for others.

        ``after_piece`` takes each piece's gradients (in the parameters' order) by themselves; without it
        they add up in ``.grad``. Raises `JobError` for what cannot be trained; other exceptions of the
        user's code as they are.
        """
        parameters = self.layout.parameters
        clear(parameters)
        sums = Sums(used=[False] * len(parameters))
        pieces = self.pieces(position.samples, units)
        rows = self.norms.rows(self.units(position.samples)) if self.norms else self._no_rows
        with self._fixed.unchanged():
            for piece in pieces:
                self._last_piece = piece is pieces[-1]
                try:
                    self._one(position, piece, sums, rows)
                finally:
                    self._last_piece = False
                if after_piece is not None:
                    self._note_used(sums)
                    after_piece([parameter.grad for parameter in parameters], sums)
                    clear(parameters)
        if after_piece is None:
            self._note_used(sums)
        return Computed(sums, rows)

    def _one(self, position: StepPosition, piece: Piece, sums: Sums, rows: torch.Tensor) -> None:
        job = self.job
        batch = job.train.batch(self.indices(position, piece), position.epoch)
        if job.needs_granules:
            seed_all(sampler.granule_seed(job.spec.seed, position.step, piece.index))
            with self.norms.collecting(rows, piece.index, piece.samples):
                loss = job.loss(job.model, batch)
        else:
            loss = job.loss(job.model, batch)
        sums.samples += piece.samples
        sums.weight.add(float(loss.weight))
        sums.loss.add(loss.sum.item())
        # The same gradient as that of ``backward(scale)``, for which torch imports a computer algebra system.
        (loss.sum * self._scale_of(loss.sum, position.samples)).backward()  # type: ignore[no-untyped-call]

    def _scale_of(self, total: torch.Tensor, samples: int) -> torch.Tensor:
        scale = self._scale
        if scale is None or scale.dtype != total.dtype or scale.device != total.device:
            scale = self._scale = torch.empty((), dtype=total.dtype, device=total.device)
            self._scaled_for = 0
        if samples != self._scaled_for:
            scale.fill_(1.0 / samples)
            self._scaled_for = samples
        return scale

    def _note_used(self, sums: Sums) -> None:
        for index, parameter in enumerate(self.layout.parameters):
            if parameter.grad is not None:
                self.layout.refuse_sparse(index)
                sums.used[index] = True
