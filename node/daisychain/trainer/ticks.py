"""The ticks of one world: steps and evaluations, each computed, reduced, and committed by its rider."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch

from daisychain.core.reports import Phase, Progress
from daisychain.core.world import WorldPlan
from daisychain.errors import WorldError
from daisychain.trainer.engine.capacity import Speeds
from daisychain.trainer.engine.engine import Reduced
from daisychain.trainer.engine.evaluation import Evaluation
from daisychain.trainer.loading import Run
from daisychain.trainer.phases import PhaseClock
from daisychain.trainer.record import journal as record
from daisychain.trainer.state.training_state import Action
from daisychain.trainer.state.transfer import Prepared, Settling
from daisychain.trainer.world.group import FormedWorld

log = logging.getLogger(__name__)

AUDIT_EVERY_STEPS = 500
"""Committed steps between two comparisons of the members' states: silent drift is found and repaired."""

PROGRESS_EVERY_S = 0.1
"""Reports of progress come no closer, but for a world's first step and the run's last."""

RATE_STEPS = 20
"""Steps over which samples_per_s is taken."""

Report = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Clocks:
    """``monotonic``: seconds for durations; ``unix``: seconds since 1970, for people."""

    monotonic: Callable[[], float] = time.monotonic
    unix: Callable[[], float] = time.time


class Ticks:
    """Trains one run in one world, from the state that all its members hold.

    Attributes:
        prepared: the tick that is reduced here and not committed; outlives the world's breaking.
        part: the tick whose part is computed here now; None between. A `JobError` that comes then says that
            this part failed, which another member may be able to compute.
    """

    def __init__(
        self, run: Run, world: FormedWorld, plan: WorldPlan, phases: PhaseClock, report: Report
    ) -> None:
        self.prepared: Prepared | None = None
        self.part: int | None = None
        self._run = run
        self._world = world
        self._plan = plan
        self._phases = phases
        self._report = report
        self._clocks = Clocks()
        self._speeds = Speeds([member.capacity for member in plan.members])
        self._reported_at = -math.inf
        self._step_s = 0.0
        self._recent: deque[tuple[float, int]] = deque(maxlen=RATE_STEPS + 1)

    def train(self, settling: Settling) -> None:
        """Commit ticks until the run has no more.

        Raises `WorldError` when the world breaks (see ``prepared``), `JobError` when the job cannot go on
        here (see ``part``).
        """
        while (action := self._run.state.next()) is not Action.FINISH:
            if action is Action.EVALUATE:
                self._evaluate()
                self._save()
                continue
            self._step()
            self._save()
            if self._run.state.step % AUDIT_EVERY_STEPS == 0:
                settled = settling.settle(self._world, self._plan, None)
                self._run.note_repairs(settled.drifted, self._plan)

    def _save(self) -> None:
        """Begin a checkpoint when one is due."""
        if self._run.writer.due():
            self._phases.enter(Phase.SAVING)
            self._run.writer.begin(self._run.head())

    def _step(self) -> None:
        run, world = self._run, self._world
        position = run.engine.timeline.position(run.state.step)
        shares = self._speeds.shares(run.engine.units(position))
        predicted_s = self._predicted_s(shares[world.rank])
        self._phases.enter(Phase.COMPUTING, predicted_s)
        began_at = self._clocks.monotonic()
        self.part = tick = run.state.tick + 1
        reduced = run.engine.reduce_step(world, position, shares)
        self.part = None
        prepared = Prepared(tick, self._plan.generation, lambda: self._commit_step(reduced, began_at))
        self.prepared = prepared
        self._phases.enter(Phase.COMMITTING, predicted_s)
        compute_s, whole_s = self._ride(reduced.compute_s)
        prepared.commit()
        self.prepared = None
        self._speeds.observe(shares, compute_s, whole_s)

    def _evaluate(self) -> None:
        run, world = self._run, self._world
        shares = self._speeds.shares(run.engine.evaluation_units())
        predicted_s = self._predicted_s(shares[world.rank])
        self._phases.enter(Phase.EVALUATING, predicted_s)
        self.part = tick = run.state.tick + 1
        evaluation = run.engine.evaluate(world, shares)
        self.part = None
        prepared = Prepared(tick, self._plan.generation, lambda: self._commit_evaluation(evaluation))
        self.prepared = prepared
        self._phases.enter(Phase.COMMITTING, predicted_s)
        self._ride(0.0)
        prepared.commit()
        self.prepared = None

    def _predicted_s(self, units: int) -> float:
        return self._speeds.capacities()[self._world.rank].step_s(units)

    def _ride(self, compute_s: float) -> tuple[list[float], float]:
        """Sum the rider: when it is complete here, every rank holds the whole reduction of this tick.

        It is issued only after that is so on this rank. Returns each rank's compute seconds, and the seconds
        that rank 0 took for the whole of its last step: all ranks go by the same. The last number,
        the ranks' ticks, guards against members that are not where they should be.
        """
        world, tick = self._world, self._run.state.tick
        rider = torch.zeros(world.size + 2, dtype=torch.float64)
        rider[world.rank] = compute_s
        if world.rank == 0:
            rider[-2] = self._step_s
        rider[-1] = tick
        world.sum(rider).wait()
        *seconds, whole_s, ticks = rider.tolist()
        if ticks != tick * world.size:
            raise WorldError(f"the members are not all at tick {tick}")
        return seconds, whole_s

    def _commit_step(self, reduced: Reduced, began_at: float) -> None:
        run = self._run
        outcome = run.state.commit_step(reduced, self._plan.generation)
        now = self._clocks.monotonic()
        self._step_s = step_s = now - began_at
        run.journal.append(
            record.StepLine(
                step=run.state.step,
                epoch=reduced.position.epoch,
                loss=finite(outcome.loss),
                samples=outcome.samples,
                step_s=round(step_s, 6),
                world=record.WorldInfo(
                    generation=str(self._plan.generation),
                    size=self._plan.world_size,
                    coordinator=self._plan.members[0].name,
                    shares=reduced.shares,
                ),
                at=round(self._clocks.unix(), 4),
            )
        )
        self._recent.append((now, outcome.samples))
        last = run.state.step == run.engine.timeline.steps
        if last or now - self._reported_at >= PROGRESS_EVERY_S:
            self._reported_at = now
            self._report(
                Progress(
                    generation=self._plan.generation,
                    step=run.state.step,
                    tick=run.state.tick,
                    steps=run.engine.timeline.steps,
                    epoch=reduced.position.epoch,
                    loss=outcome.loss,
                    samples=outcome.samples,
                    step_s=step_s,
                    shares=reduced.shares,
                    samples_per_s=self._samples_per_s(outcome.samples, step_s),
                )
            )

    def _samples_per_s(self, samples: int, step_s: float) -> float:
        """Return the rate over the last steps; of the first one from its own seconds."""
        if len(self._recent) < 2:
            return samples / max(step_s, 1e-9)
        took_s = self._recent[-1][0] - self._recent[0][0]
        return sum(count for _, count in list(self._recent)[1:]) / max(took_s, 1e-9)

    def _commit_evaluation(self, evaluation: Evaluation) -> None:
        run = self._run
        run.state.commit_evaluation(evaluation, self._plan.generation)
        told = reported(run, evaluation)
        run.journal.append(record.EvaluationLine(run.state.step, told, round(self._clocks.unix(), 4)))
        run.journal.flush()
        log.info("step %d: held-out loss %s, %s", run.state.step, told.loss, told.metrics)


def reported(run: Run, evaluation: Evaluation) -> record.Evaluation:
    """Return an evaluation as people are told it: metrics finished from their means, finite or None."""
    metrics = run.job.finish_metrics(evaluation.metrics)
    return record.Evaluation(
        finite(evaluation.loss), {name: finite(value) for name, value in sorted(metrics.items())}
    )


def finite(number: float) -> float | None:
    """Return ``number``, or None when JSON has no word for it."""
    return number if math.isfinite(number) else None
