"""The end of a run on one node: its model, summary and audit, published as the job's result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

import daisychain
from daisychain.trainer.loading import Run
from daisychain.trainer.record.audit import audit
from daisychain.trainer.record.journal import Journal, Line, StepLine
from daisychain.trainer.record.results import Summary, publish, write_summary
from daisychain.trainer.state.training_state import Best
from daisychain.trainer.ticks import reported
from daisychain.wire.job_yaml import RESULT_FOLDER


@dataclass(slots=True)
class _Ends:
    """The ends of a record, noted while it is read: a long run's lines are never in memory together."""

    first: StepLine | None = None
    last: StepLine | None = None
    finished_at: float = 0.0

    def noting(self, journal: Journal) -> Iterator[Line]:
        """Yield the lines of ``journal``."""
        for line in journal.lines():
            if isinstance(line, StepLine):
                self.first, self.last = self.first or line, line
            self.finished_at = line.at
            yield line


def finish(run: Run) -> bool:
    """Write and publish the result of a run that has no more ticks.

    Returns False when another node that shares the jobs folder already did. Raises `StorageError`,
    and `JobError` when the model cannot be written. The state stays as it is.
    """
    folder = Path(run.order.run_folder)
    result = run.state.result()
    with _holding(run, result):
        run.job.export(str(folder))
    run.journal.flush()
    write_summary(folder, _summary(run, result))
    return publish(folder, Path(run.order.job_folder) / RESULT_FOLDER, str(run.order.run_id))


@contextmanager
def _holding(run: Run, result: Best) -> Iterator[None]:
    """Have the model hold ``result`` within, and its own state again after it."""
    model = run.job.model
    kept = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    try:
        model.load_state_dict(result.tensors)
        yield
    finally:
        model.load_state_dict(kept)


def _summary(run: Run, result: Best) -> Summary:
    timeline, steps = run.engine.timeline, run.state.step
    ends = _Ends()
    found = audit(ends.noting(run.journal), timeline, steps if run.state.stopped_early else None)
    first, last = ends.first, ends.last
    started_at = first.at - first.step_s if first else 0.0
    trained_s = last.at - started_at if last else 0.0
    return Summary(
        job=run.order.job_name,
        run_id=str(run.order.run_id),
        kind=run.kind,
        started_at=started_at,
        finished_at=ends.finished_at,
        steps=steps,
        epochs=steps / timeline.steps_per_epoch,
        samples=found.samples_committed,
        samples_per_s=found.samples_committed / max(trained_s, 1e-9),
        parameters=run.engine.parameters,
        train_loss=last.loss if last else None,
        evaluation=reported(run, result.evaluation)
        if timeline.evaluates and run.state.counters.last
        else None,
        model_step=result.step,
        stopped_early=run.state.stopped_early,
        reproducible=run.job.spec.reproducible,
        rounds_alike=False if run.state.rounded_apart else run.rounds_alike,
        repairs=run.repairs,
        audit=found,
        notes=run.notes,
        torch=str(torch.__version__),
        daisychain=daisychain.__version__,
    )
