"""The training maths of one rank: compute a share, sum exactly over the ranks, step alike on all of them.

`Engine.reduce_step` leaves model, optimizer and exponents as they are, whatever happens in it, so a step
whose world broke is redone exactly. Only `Engine.apply` and, for the schedule, `Engine.take_evaluation`
change them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from daisychain.errors import JobError
from daisychain.trainer.engine import checks, fixed_point
from daisychain.trainer.engine.backoff import within_memory
from daisychain.trainer.engine.compute import Computed, Computer
from daisychain.trainer.engine.evaluation import Evaluation, Evaluator
from daisychain.trainer.engine.exchange import Exchange
from daisychain.trainer.engine.faults import NOT_FINITE_REMEDY, blame, job_file, user_code
from daisychain.trainer.engine.gradients import Flats, Gathering, clear, first_not_finite
from daisychain.trainer.engine.memory import keep_freed
from daisychain.trainer.engine.sampler import own_units
from daisychain.trainer.engine.tail import Sums, Tail
from daisychain.trainer.engine.threads import intra_op_threads
from daisychain.trainer.engine.timeline import StepPosition, Timeline
from daisychain.trainer.jobs.loaded import LoadedJob

EXPONENTS = "exponents"


@dataclass(slots=True)
class Reduced:
    """The whole gradient of one step, as every rank holds it: enough to commit the step by itself.

    It owns its memory: it may be kept while the world breaks and another forms, and then be applied, once.

    Attributes:
        position: the step.
        shares: who took how many units.
        tail: the exact sums.
        gradients: for each parameter the sum over the global batch divided by its samples; None = unused.
        rows: the batch-norm statistics of every granule.
        exponents: of the next step, in reproducible mode.
        compute_s: this rank's own seconds in forward and backward, waits left out.
        flats: the memory that ``gradients`` lies in; None in a world of one.
    """

    position: StepPosition
    shares: tuple[int, ...]
    tail: Tail
    gradients: list[torch.Tensor | None]
    rows: torch.Tensor
    exponents: torch.Tensor | None
    compute_s: float
    flats: Flats | None


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """A committed step.

    Attributes:
        loss: the mean over the global batch's weight.
        samples: of the global batch.
        weight: its weight.
    """

    loss: float
    samples: int
    weight: float


class Engine:
    """One job's training maths on this rank.

    Attributes:
        job, timeline: what is trained, and when.
        computer: forward and backward.
        healthy: False from the moment an optimizer step began until it ended well: a model that is not
            may not be given to others.
    """

    def __init__(
        self, job: LoadedJob, timeline: Timeline, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Check the job and get it ready; raises `JobError` for one that cannot be trained exactly."""
        keep_freed()
        torch.set_num_threads(intra_op_threads(job.spec, torch.get_num_threads()))
        checks.check(job)
        self.job = job
        self.timeline = timeline
        self.computer = Computer(job, timeline)
        self.healthy = True
        self._clock = clock
        self._evaluator = Evaluator(self.computer)
        self._exponents = fixed_point.unknown(self.computer.layout)
        self._spare: dict[bool, Flats] = {}
        self._on_host = all(each.device.type == "cpu" for each in self.computer.layout.parameters)

    @property
    def parameters(self) -> int:
        """The number of trained numbers."""
        return self.computer.layout.elements

    def units(self, position: StepPosition) -> int:
        """Return the units of a step: what its shares sum to."""
        return self.computer.units(position.samples)

    def evaluation_units(self) -> int:
        """Return the units of an evaluation; 0 when there is no held-out data."""
        return self._evaluator.units()

    def evaluate(self, exchange: Exchange, shares: tuple[int, ...]) -> Evaluation:
        """Return the held-out loss and metrics over all ranks; see `Evaluator.evaluate`."""
        return self._evaluator.evaluate(exchange, shares)

    def reduce_step(self, exchange: Exchange, position: StepPosition, shares: tuple[int, ...]) -> Reduced:
        """Compute this rank's share and return the whole gradient once every sum completed here.

        ``shares``: units of each rank, in rank order; they sum to `units`. Raises `WorldError` when the world
        breaks, or another rank's part is at fault, and `JobError` when this one's is, or the whole is; the
        same step can be redone after either.
        """
        if len(shares) != exchange.size or sum(shares) != self.units(position):
            raise ValueError(f"shares {shares} for {exchange.size} ranks and {self.units(position)} units")
        try:
            with user_code(self.job, f"in step {position.step + 1}"):
                if self.job.spec.reproducible:
                    return self._reduce_exactly(exchange, position, shares)
                return self._reduce(exchange, position, shares)
        finally:
            self.computer.listen(None)
            clear(self.computer.layout.parameters)

    def _reduce(self, exchange: Exchange, position: StepPosition, shares: tuple[int, ...]) -> Reduced:
        computer, layout = self.computer, self.computer.layout
        alone = exchange.size == 1
        flats = None if alone else self._memory(integers=False)
        gathering = None if flats is None else Gathering(layout, flats, exchange)
        if gathering is None:
            computer.unhook()
        else:
            computer.listen(gathering.ready)
        started = self._clock()
        own = own_units(shares, exchange.rank)
        # What was sent before memory ran out is whole, and is not sent again: the rest follows below.
        computed = within_memory(
            computer, lambda: computer.compute(position, own), before_retry=lambda: computer.listen(None)
        )
        compute_s = self._clock() - started
        gradients: Sequence[torch.Tensor | None]
        if flats is None or gathering is None:
            gradients = [parameter.grad for parameter in layout.parameters]
        else:
            gathering.send_rest()
            gradients = flats.slots
        tail = self._sum_tail(exchange, computed)
        if gathering is not None:
            gathering.wait()
        self._refuse_not_finite(position, tail, computed.sums)
        kept = [each if used else None for each, used in zip(gradients, tail.used, strict=True)]
        broken = first_not_finite(kept)
        if broken is not None:
            self._refuse_gradient(exchange, position, broken)
        return Reduced(position, shares, tail, kept, computed.rows, None, compute_s, flats)

    def _reduce_exactly(self, exchange: Exchange, position: StepPosition, shares: tuple[int, ...]) -> Reduced:
        """Sum in fixed point; a granule that does not fit has the step redone with exponents that do."""
        layout, granules = self.computer.layout, self.units(position)
        exponents = self._exponents
        compute_s = 0.0
        for redone in (False, True):
            flats = self._memory(integers=True)
            flats.zero()
            accumulator = fixed_point.Accumulator(layout, flats, exponents, granules)

            def add(
                gradients: Sequence[torch.Tensor | None],
                sums: Sums,
                into: fixed_point.Accumulator = accumulator,
            ) -> None:
                into.add(gradients)
                sums.not_finite |= into.not_finite
                sums.out_of_range |= into.out_of_range

            started = self._clock()
            computed = self.computer.compute(position, own_units(shares, exchange.rank), add)
            compute_s += self._clock() - started
            pending = [exchange.sum(flat) for flat in flats.tensors]
            tail = self._sum_tail(exchange, computed)
            for each in pending:
                each.wait()
            self._refuse_not_finite(position, tail, computed.sums)
            if not tail.out_of_range:
                break
            self._spare[True] = flats
            if redone:
                error = JobError(
                    job_file(self.job),
                    f"step {position.step + 1} gave another gradient when it was computed again",
                    "Take randomness from torch, numpy or random only, and keep nothing between batches",
                )
                raise blame(computed.sums.out_of_range, error)
            exchange.max(accumulator.needed).wait()
            exponents = torch.maximum(exponents, accumulator.needed)
        values = fixed_point.values(layout, flats, exponents, granules)
        following = fixed_point.follow(exponents, values)
        self._spare[True] = flats  # the values are copies
        kept = [each if used else None for each, used in zip(values, tail.used, strict=True)]
        return Reduced(position, shares, tail, kept, computed.rows, following, compute_s, None)

    def _memory(self, integers: bool) -> Flats:
        # Taken out of the spare place, so that what a broken world still writes into is never used again.
        return self._spare.pop(integers, None) or Flats(self.computer.layout, integers)

    def _sum_tail(self, exchange: Exchange, computed: Computed) -> Tail:
        if exchange.size == 1:
            return Tail.of(computed.sums.numbers())
        vector = torch.tensor(computed.sums.numbers(), dtype=torch.int64)
        pending = [exchange.sum(vector)]
        if computed.rows.numel():
            pending.append(exchange.sum(computed.rows))
        for each in pending:
            each.wait()
        return Tail.of(vector.tolist())

    def _refuse_not_finite(self, position: StepPosition, tail: Tail, own: Sums) -> None:
        where = job_file(self.job)
        if tail.not_finite:
            error = JobError(
                where,
                f"the loss or its gradient is NaN or infinite in step {position.step + 1}",
                NOT_FINITE_REMEDY,
            )
            raise blame(own.broken, error)
        if tail.weight <= 0.0:
            raise JobError(
                where,
                f"the loss's weights sum to {tail.weight} in step {position.step + 1}",
                "Every batch needs a positive weight; leave out samples that never count",
            )

    def _refuse_gradient(self, exchange: Exchange, position: StepPosition, broken: int) -> NoReturn:
        """Raise for a reduced gradient that is not finite in parameter ``broken``, though the loss is.

        Every rank holds the same one, so all of them come here, and ask each other whose own was not
        finite before the sum: that is still in ``.grad``. If nobody's was, the sum itself overflowed.
        """
        own = first_not_finite([parameter.grad for parameter in self.computer.layout.parameters])
        culprits = torch.tensor([int(own is not None)], dtype=torch.int64)
        exchange.sum(culprits).wait()
        error = JobError(
            job_file(self.job),
            f"the gradient of {self.computer.layout.names[broken if own is None else own]} is NaN or "
            f"infinite in step {position.step + 1}",
            NOT_FINITE_REMEDY,
        )
        raise blame(own is not None or culprits.item() == 0, error)

    def apply(self, reduced: Reduced) -> StepOutcome:
        """Commit ``reduced``: clip, optimizer, schedule, batch norm, exponents; alike on every rank.

        Raises `JobError` when the optimizer or the schedule fails; ``healthy`` then stays False.
        """
        self.healthy = False
        parameters, tail = self.computer.layout.parameters, reduced.tail
        present = [each for each in reduced.gradients if each is not None]
        factor = reduced.position.samples / tail.weight
        if factor != 1.0 and present:
            torch._foreach_mul_(present, factor)
        # The gradients stay until the next step clears them: freed here, the allocator would give their
        # memory back to the system at once, only to be asked for it again.
        for parameter, gradient in zip(parameters, reduced.gradients, strict=True):
            parameter.grad = gradient if gradient is None or self._on_host else gradient.to(parameter.device)
        with user_code(self.job, f"in the optimizer's step {reduced.position.step}"):
            if self.job.spec.clip_grad_norm is not None:
                torch.nn.utils.clip_grad_norm_(parameters, self.job.spec.clip_grad_norm)
            self.job.optimizer.step()
            if self.job.schedule is not None and not isinstance(self.job.schedule, ReduceLROnPlateau):
                self.job.schedule.step()
        self.computer.norms.fold(reduced.rows)
        if reduced.exponents is not None:
            self._exponents = reduced.exponents
        if reduced.flats is not None:
            self._spare[False] = reduced.flats
        self.healthy = True
        return StepOutcome(tail.loss / tail.weight, tail.samples, tail.weight)

    def take_evaluation(self, evaluation: Evaluation) -> None:
        """Commit ``evaluation``: a schedule that waits for a plateau is told the held-out loss.

        The loss is an exact sum over all ranks, so the schedule goes on alike on each. Raises `JobError`
        when the schedule fails; ``healthy`` then stays False.
        """
        if isinstance(self.job.schedule, ReduceLROnPlateau):
            self.healthy = False
            with user_code(self.job, "in the schedule after an evaluation"):
                self.job.schedule.step(evaluation.loss)
            self.healthy = True

    def extra_state(self) -> dict[str, torch.Tensor]:
        """Return the state of training that is neither the model's, the optimizer's nor the schedule's."""
        return {EXPONENTS: self._exponents.clone()} if self.job.spec.reproducible else {}

    def load_extra_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Take over `extra_state` of another rank; raises `ValueError` when it is not of this job."""
        if not self.job.spec.reproducible:
            return
        exponents = state[EXPONENTS]
        if exponents.shape != self._exponents.shape or exponents.dtype != torch.int64:
            raise ValueError(f"{len(self._exponents)} int64 exponents expected, got {tuple(exponents.shape)}")
        self._exponents = exponents.clone()
