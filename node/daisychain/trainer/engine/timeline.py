"""Which positions of the data belong to which step, and when the held-out data is evaluated."""

from __future__ import annotations

from dataclasses import dataclass

from daisychain.core.job_spec import JobSpec


@dataclass(frozen=True, slots=True)
class StepPosition:
    """Where one training step lies: positions ``start <= p < stop`` of its epoch's order.

    Attributes:
        step: from 0: the number of steps committed before it.
        epoch: from 0.
        start, stop: of the global batch, within the epoch.
    """

    step: int
    epoch: int
    start: int
    stop: int

    @property
    def samples(self) -> int:
        """The samples of the global batch."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Timeline:
    """The whole run on paper: the same on every node, whatever nodes come and go.

    Attributes:
        steps: training steps of the whole run.
        steps_per_epoch: the last one of an epoch may be smaller; it is never dropped.
        samples: of the training split.
        batch: the global batch size.
        interval: steps between evaluations; 0 = only after the last step.
        evaluates: whether there is held-out data.
    """

    steps: int
    steps_per_epoch: int
    samples: int
    batch: int
    interval: int
    evaluates: bool

    @classmethod
    def of(cls, spec: JobSpec, train_samples: int, has_validation: bool) -> Timeline:
        """Return the run of ``spec`` over ``train_samples`` (>= 1) samples."""
        if train_samples < 1:
            raise ValueError("a run needs at least one training sample")
        steps_per_epoch = -(-train_samples // spec.global_batch_size)
        steps = spec.steps if spec.steps is not None else (spec.epochs or 0) * steps_per_epoch
        interval = spec.evaluate_every_steps or (spec.evaluate_every_epochs or 0) * steps_per_epoch
        return cls(steps, steps_per_epoch, train_samples, spec.global_batch_size, interval, has_validation)

    def position(self, step: int) -> StepPosition:
        """Return where the step that follows ``step`` committed ones lies."""
        epoch, index = divmod(step, self.steps_per_epoch)
        start = index * self.batch
        return StepPosition(step, epoch, start, min(start + self.batch, self.samples))

    def evaluations(self, step: int) -> int:
        """Return how many evaluations belong before the step that follows ``step`` committed ones."""
        if not self.evaluates:
            return 0
        regular = step // self.interval if self.interval else 0
        last = step >= self.steps and (not self.interval or self.steps % self.interval != 0)
        return regular + (1 if last else 0)

    def evaluation_due(self, step: int, evaluations: int) -> bool:
        """Return whether an evaluation comes next, ``step`` steps and ``evaluations`` being committed."""
        return self.evaluations(step) > evaluations
