"""The agent's side of its trainer: what it is told, what it says, and whether it still lives."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from daisychain.core.effects import Effect, KillTrainer, Level, Note, StartTrainer, StopTrainer, Tell
from daisychain.core.ids import Generation, RunId
from daisychain.core.jobs import JobCard, told_reason
from daisychain.core.node import TrainerState, TrainerStatus
from daisychain.core.orders import FormWorld, LeaveWorld, PeerBlobs, Ping
from daisychain.core.reports import (
    DiskTrouble,
    LocalBlob,
    Phase,
    Pong,
    Progress,
    Report,
    RunFailed,
    RunFinished,
    TrainerReady,
    WorldBroken,
    WorldFormed,
)
from daisychain.core.settings import CoreSettings
from daisychain.core.world import WorldPlan

_ABLE = (TrainerState.READY, TrainerState.FORMING, TrainerState.TRAINING, TrainerState.DONE)


class TrainerWatch:
    """At most one trainer process, its status as told to peers, and its crashes.

    Attributes:
        status: what peers are told.
        plan: the newest world that the trainer was given; None when it left it, or never had one.
        blob: its address blob for that world, until the others' blobs are there.
        progress: its newest progress in that world.
        steps: training steps of the whole run, once known.
    """

    def __init__(self, settings: CoreSettings) -> None:
        self._settings = settings
        self.status = TrainerStatus()
        self.plan: WorldPlan | None = None
        self.blob: LocalBlob | None = None
        self.progress: Progress | None = None
        self.steps = 0
        self._run: RunId | None = None  # of the process that exists
        self._stopping = False
        self._killed = False
        self._finished = False
        self._started_at = 0.0
        self._answered_at = 0.0
        self._pinged_at = 0.0
        self._stalled_at = 0.0
        self._seq = 0
        self._highest: Generation | None = None
        self._crashed: RunId | None = None
        self._crashes = 0
        self._crash_reason = ""
        self._restart_at = 0.0
        self._failed: RunId | None = None
        self._failure = ""

    @property
    def able(self) -> bool:
        """Whether the trainer can enter a world."""
        return self.status.state in _ABLE and not self.status.stalled

    @property
    def fresh(self) -> bool:
        """Whether the trainer has not trained in its life: all that it holds came from its disk."""
        status = self.status
        unused = status.broken is None or status.tick == 0
        return status.state in (TrainerState.LOADING, TrainerState.READY) and unused

    def gave_up(self, run_id: RunId) -> str:
        """Return why this node no longer starts trainers for a run; empty while it does.

        A new life of the node, and a new submission of the job, get another chance.
        """
        if self._failed == run_id:
            return self._failure
        if self._crashed == run_id and self._crashes > self._settings.restarts_max:
            return f"its trainer crashed {self._crashes} times: {self._crash_reason}"
        return ""

    def attend(self, wanted: JobCard | None, stop_reason: str, now: float) -> list[Effect]:
        """Start or stop the process so that it is the one for ``wanted``.

        ``stop_reason`` says why a trainer of another run, or of none wanted, ends; empty keeps it
        (a moment without a coordinator is no reason to throw a loaded job away).
        """
        if self._run is not None:
            if stop_reason and (wanted is None or wanted.run_id != self._run) and not self._stopping:
                return self.stop(stop_reason)
            return []
        if wanted is None or self.gave_up(wanted.run_id):
            return []
        if self._crashed != wanted.run_id:
            self._crashed, self._crashes, self._restart_at = wanted.run_id, 0, now
        if now < self._restart_at:
            return []
        self._run, self._stopping, self._killed, self._finished = wanted.run_id, False, False, False
        self._started_at = self._answered_at = self._pinged_at = now
        self.steps = 0  # those of the last run are none of this one's
        self.status = TrainerStatus(state=TrainerState.LOADING, run_id=wanted.run_id)
        return [StartTrainer(wanted)]

    def stop(self, reason: str) -> list[Effect]:
        """End the process in good order; no report of it counts any more.

        One that still loads has nothing to put in order and takes no orders for seconds: it is killed.
        """
        if self._run is None or self._stopping:
            return []
        effects: list[Effect] = []
        if self.plan is not None:
            effects.append(Tell(self._run, LeaveWorld(self.plan.generation, reason)))
        end = KillTrainer if self.status.state is TrainerState.LOADING else StopTrainer
        self._stopping = True
        self._clear()
        return [*effects, end(self._run, reason)]

    def exited(self, run_id: RunId, reason: str, now: float) -> str:
        """The process is gone; return what to note when nobody asked for that, else nothing."""
        if run_id != self._run:
            return ""
        asked = self._stopping or self.status.state in (TrainerState.DONE, TrainerState.FAILED)
        failed = self.status if self.status.state is TrainerState.FAILED else None
        self._run, self._stopping = None, False
        self._clear()
        if failed is not None:
            self.status = failed
        if asked:
            return ""
        settings = self._settings
        self._crashes += 1
        self._crash_reason = reason
        wait_s = min(settings.restart_max_s, settings.restart_s * 2.0 ** (self._crashes - 1))
        self._restart_at = now + wait_s
        over = self.gave_up(run_id)
        if over:  # the coordinator must see it: when nobody is left who can train the run, it has failed
            self.status = TrainerStatus(state=TrainerState.FAILED, run_id=run_id, reason=over)
        return f"the trainer of {run_id} ended ({reason}); " + (
            over or f"it is started again in {wait_s:g} s"
        )

    def enter(self, plan: WorldPlan) -> list[Effect]:
        """Give a plan to the trainer, when it is for it and above every earlier one."""
        if self._run is None or self._stopping or plan.run_id != self._run or not self.able:
            return []
        if self._highest is not None and plan.generation <= self._highest:
            return []
        self._highest = plan.generation
        self.plan, self.blob, self.progress = plan, None, None
        self.status = replace(self.status, state=TrainerState.FORMING, generation=plan.generation, reason="")
        return [Tell(self._run, FormWorld(plan, self._settings.formation_s))]

    def dismiss(self, plan: WorldPlan) -> list[Effect]:
        """Leave the present world for a newer one of this run, of which this node is no member."""
        if self._run != plan.run_id or self.plan is None or plan.generation <= self.plan.generation:
            return []
        self._highest = plan.generation
        generation = self.plan.generation
        reason = f"world {plan.generation} trains without this node"
        self._leave_world(reason, self.status.tick, self.status.step)
        return [Tell(plan.run_id, LeaveWorld(generation, reason))]

    def meet(self, generation: Generation, blobs: tuple[bytes, ...]) -> list[Effect]:
        """Give the others' blobs to the trainer, once, when they are of its newest world."""
        if self._run is None or self.plan is None or self.plan.generation != generation:
            return []
        if self.blob is None or len(blobs) != self.plan.world_size:
            return []
        self.blob = None
        return [Tell(self._run, PeerBlobs(generation, blobs))]

    def reported(self, run_id: RunId, report: Report, now: float) -> list[Effect]:  # noqa: PLR0912 - one case a kind
        """Take in a report; one of a trainer that is being stopped, or of another run, is ignored."""
        if run_id != self._run or self._stopping:
            return []
        self._answered_at = now
        current = self.plan.generation if self.plan is not None else None
        match report:
            case TrainerReady():
                self.steps = report.steps
                self.status = replace(
                    self.status,
                    state=TrainerState.READY,
                    tick=report.tick,
                    step=report.step,
                    capacity=report.capacity,
                    rounding=report.rounding,
                )
            case LocalBlob():
                if report.generation == current:
                    self.blob = report
            case WorldFormed():
                if report.generation == current:
                    state = TrainerState.DONE if self._finished else TrainerState.TRAINING
                    self._at(report.tick, report.step, state)
            case Progress():
                if report.generation == current and self.status.state is TrainerState.TRAINING:
                    self.progress, self.steps = report, report.steps
                    self._at(report.tick, report.step, self.status.state)
            case WorldBroken():
                if report.generation == current:
                    self._leave_world(report.reason, report.tick, report.step)
            case Pong():
                return self._judge(report, now)
            case RunFinished():
                self._finished = True
                self._at(report.tick, report.step, TrainerState.DONE)
                if report.unwritten:
                    self.status = replace(self.status, reason=report.unwritten)
                    return [Note(Level.ERROR, f"no result of {run_id} here: {report.unwritten}", "result")]
            case DiskTrouble():
                self.status = replace(self.status, trouble=told_reason(report.text))
                if report.text:
                    return [Note(Level.WARNING, f"{run_id} goes on, but {report.text}", "disk trouble")]
                return [Note(Level.INFO, f"{run_id}: everything can be written again", "disk well")]
            case RunFailed():
                return self._fail(run_id, report)
            case _:
                assert_never(report)
        return []

    def watch(self, now: float) -> list[Effect]:
        """Ping the trainer, and judge its silence."""
        if self._run is None or self._stopping:
            return []
        settings, effects = self._settings, list[Effect]()
        if now >= self._pinged_at + settings.ping_s:
            self._pinged_at = now
            self._seq += 1
            effects.append(Tell(self._run, Ping(self._seq)))
        if self.status.state is TrainerState.LOADING:
            if now >= self._started_at + settings.loading_max_s:
                effects += self._kill(f"it did not load the job within {settings.loading_max_s:g} s")
        elif not self.status.stalled and now >= self._answered_at + settings.stall_s:
            self._stall(f"its trainer has not answered for {now - self._answered_at:.1f} s", now)
        elif self.status.stalled and now >= self._stalled_at + settings.stall_kill_s:
            effects += self._kill(f"it was stalled for {settings.stall_kill_s:g} s")
        return effects

    def wake(self, now: float) -> None:
        """The agent itself was frozen: the trainer gets its full time to answer."""
        self._answered_at = self._pinged_at = now

    def deadline(self, now: float) -> float | None:
        """Return when `watch` or `attend` next has something to do."""
        if self._run is None:
            return self._restart_at if self._restart_at > now else None
        return None if self._stopping else self._pinged_at + self._settings.ping_s

    def _at(self, tick: int, step: int, state: TrainerState) -> None:
        self.status = replace(self.status, tick=tick, step=step, state=state)

    def _leave_world(self, reason: str, tick: int, step: int) -> None:
        """The trainer is out of its world and waits for the next one."""
        state = TrainerState.DONE if self._finished else TrainerState.READY
        broken = self.status.generation
        reason = told_reason(reason)
        self.status = replace(
            self.status, state=state, tick=tick, step=step, generation=None, broken=broken, reason=reason
        )
        self.plan = self.blob = self.progress = None

    def _fail(self, run_id: RunId, report: RunFailed) -> list[Effect]:
        """The run failed here: the process ends, and its status says why for as long as the run goes on."""
        reason = f"{report.where}: {report.message}"
        if report.remedy:
            reason += f". {report.remedy}"
        before = self.status
        self._failed, self._failure = run_id, told_reason(reason)
        self._clear()
        self._stopping = True
        self.status = TrainerStatus(
            state=TrainerState.FAILED,
            run_id=run_id,
            tick=before.tick,
            step=before.step,
            reason=self._failure,
            failed_at=report.tick,
        )
        return [Note(Level.ERROR, f"{run_id} failed here: {reason}", "run"), StopTrainer(run_id, "it failed")]

    def _judge(self, pong: Pong, now: float) -> list[Effect]:
        """Tell a training thread that computes for too long from one that waits or works."""
        if self.status.state is TrainerState.LOADING or self._run is None:
            return []
        limit_s = max(self._settings.stall_s, self._settings.stall_factor * pong.predicted_s)
        bounded = pong.phase in (Phase.COMPUTING, Phase.COMMITTING) or pong.predicted_s > 0
        if bounded and pong.in_phase_s > limit_s:
            if not self.status.stalled:
                self._stall(f"its trainer is {pong.phase.value} for {pong.in_phase_s:.1f} s", now)
            return []
        if not self.status.stalled:
            return []
        self.status = replace(self.status, stalled=False, reason="")
        if self.plan is None:
            return []
        generation = self.plan.generation
        self._leave_world("it had stalled", self.status.tick, self.status.step)
        return [Tell(self._run, LeaveWorld(generation, "this trainer had stalled"))]

    def _stall(self, reason: str, now: float) -> None:
        self._stalled_at = now
        self.status = replace(self.status, stalled=True, reason=reason)

    def _kill(self, reason: str) -> list[Effect]:
        if self._run is None or self._killed:
            return []
        self._killed = True
        return [KillTrainer(self._run, reason)]

    def _clear(self) -> None:
        """Forget what belonged to the process."""
        self.status = TrainerStatus()
        self.plan = self.blob = self.progress = None
        self._finished = False
