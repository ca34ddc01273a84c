"""The trainer's life: load, then one world after the other, until the run is done and the agent says so."""

from __future__ import annotations

import logging
import time

from daisychain.core.orders import LoadRun
from daisychain.core.reports import (
    DiskTrouble,
    LocalBlob,
    Phase,
    Report,
    RunFailed,
    RunFinished,
    WorldBroken,
    WorldFormed,
)
from daisychain.core.rounding import DIFFERENTLY
from daisychain.core.world import WorldPlan
from daisychain.errors import JobError, JobMemoryError, StorageError, WorldError
from daisychain.trainer.collector import set_aside
from daisychain.trainer.control import Arrived, Desk
from daisychain.trainer.finish import finish
from daisychain.trainer.link import AgentLink
from daisychain.trainer.loading import Run, load_run
from daisychain.trainer.phases import PhaseClock
from daisychain.trainer.state.reconcile import NobodySoundError
from daisychain.trainer.state.transfer import Prepared, Settling
from daisychain.trainer.ticks import Ticks
from daisychain.trainer.world.formation import Formation
from daisychain.trainer.world.group import FormedWorld, GroupSettings

log = logging.getLogger(__name__)

FINISH_PREDICTED_S = 10.0
"""Writing the result should take no longer; its agent says so when it takes four times that."""

LEFT_MAX = 4
"""Worlds that were left and whose connections are kept open; see `sockets` why they are."""


class Trainer:
    """The training thread's side; `Control` is the other."""

    def __init__(
        self, link: AgentLink, desk: Desk, phases: PhaseClock, settings: GroupSettings | None = None
    ) -> None:
        self._link = link
        self._desk = desk
        self._phases = phases
        self._settings = settings or GroupSettings()
        self._world: FormedWorld | None = None
        self._left: list[FormedWorld] = []
        self._prepared: Prepared | None = None
        self._part: int | None = None
        self._finished = False

    def serve(self) -> None:
        """Return once the agent says Shutdown; its orders come by the desk.

        Raises `group.UncleanTakedownError`, `StorageError` and what no one foresaw: the process then
        ends, and the agent reads why in its log.
        """
        order = self._desk.wait_load()
        if order is None:
            return
        try:
            run = load_run(order, lambda text: self._tell(DiskTrouble(order.run_id, text)))
        except JobError as error:
            self._fail(order, error)
            self._desk.wait_end()
            return
        set_aside()
        self._tell(run.ready())
        for note in run.job.notes:
            log.info(note)
        if run.state.tick:
            log.info("goes on from a checkpoint of step %d", run.state.step)
        log.info(
            "ready: %d parameters; a step takes %.2g ms and %.2g ms a unit",
            run.engine.parameters,
            1000 * run.capacity.fixed_s,
            1000 * run.capacity.per_unit_s,
        )
        in_order = False
        try:
            in_order = self._serve_worlds(run)
        finally:
            run.close(keep=in_order and not self._finished)
        if not in_order:
            self._desk.wait_end()

    def let_go_in_child(self) -> None:
        """Close, in a process that the job's code forked, what would keep it hidden that this one died."""
        self._link.let_go_in_child()
        for world in (self._world, *self._left):
            if world is not None:
                world.let_go_in_child()

    def _serve_worlds(self, run: Run) -> bool:
        """Carry out plans to the end; return False when the job failed here."""
        settling = Settling(run.state, run.journal, run.rounding, self._phases.transferring)
        try:
            while True:
                if self._world is None:
                    self._phases.enter(Phase.HOLDING if self._finished else Phase.IDLE)
                arrived = self._desk.wait_plan()
                if arrived is None:
                    return True
                self._serve_world(run, settling, arrived)
        except JobError as error:
            self._fail(run.order, error)  # first: nobody need wait for what is taken down and closed here
            return False
        finally:
            self._leave()

    def _serve_world(self, run: Run, settling: Settling, arrived: Arrived) -> None:
        """Carry out one plan: to the run's end, or until its world breaks. Raises `JobError`."""
        plan, self._part = arrived.order.plan, None
        try:
            self._leave()
            world = self._form(run, settling, arrived)
            self._settle(run, settling, world, arrived)
            ticks = Ticks(run, world, plan, self._phases, self._tell)
            try:
                ticks.train(settling)
            finally:
                self._prepared, self._part = ticks.prepared, ticks.part
            self._finish(run)
        except NobodySoundError:
            self._part = run.state.tick + 1  # nobody could compute it from this state
            message = "no node holds a finite state of this run"
            remedy = "Lower the learning rate or set clip_grad_norm"
            raise JobError("the training state", message, remedy) from None
        except WorldError as error:
            self._leave()
            self._phases.enter(Phase.HOLDING if self._finished else Phase.IDLE)
            if self._desk.superseded:
                log.info("world %s: %s", plan.generation, error)
                return
            log.warning("world %s broke: %s", plan.generation, error)
            self._tell(
                WorldBroken(
                    generation=plan.generation,
                    tick=run.state.tick,
                    step=run.state.step,
                    prepared=self._prepared is not None,
                    reason=str(error),
                )
            )

    def _form(self, run: Run, settling: Settling, arrived: Arrived) -> FormedWorld:
        plan = arrived.order.plan
        rank = plan.rank_of(run.order.node_id)
        if rank is None or plan.run_id != run.order.run_id:
            raise WorldError(f"the plan for run {plan.run_id} has no place for this trainer")
        self._phases.enter(Phase.FORMING)
        generation = plan.generation
        formation = Formation(
            plan,
            rank,
            arrived.at + arrived.order.timeout_s,
            lambda blob: self._tell(LocalBlob(generation, rank, blob)),
            self._settings,
            self._phases.waiting,
        )
        self._desk.under_way(generation, formation)  # known before the first answer to its blob can come
        formation.start()
        settling.look()  # while addresses travel and connections are made
        self._world = world = formation.result()
        self._desk.under_way(generation, world)
        return world

    def _settle(self, run: Run, settling: Settling, world: FormedWorld, arrived: Arrived) -> None:
        """Come to one state with all members, and report the world formed."""
        plan = arrived.order.plan
        self._phases.enter(Phase.RECONCILING)
        left_s = max(0.05, arrived.at + arrived.order.timeout_s - time.monotonic())
        try:
            settled = settling.settle(world, plan, self._prepared, left_s)
        except WorldError:
            if self._prepared is not None and run.state.tick >= self._prepared.tick:
                self._prepared = None  # it was applied, or overtaken
            raise
        self._prepared = None
        while self._left:  # all members are in the new world: nobody uses the old ones' connections
            self._left.pop().release()
        if plan.world_size > 1:
            run.rounds_alike = settled.rounds_alike and run.rounds_alike is not False
            self._say_how(plan, settled.rounds_alike, run.job.spec.reproducible)
        run.note_repairs(settled.drifted, plan)
        took_s = time.monotonic() - arrived.at
        log.info(
            "world %s of %d formed in %.3f s at step %d%s: %s",
            plan.generation,
            plan.world_size,
            took_s,
            run.state.step,
            ", state received" if settled.received else "",
            plan.reason,
        )
        self._tell(WorldFormed(plan.generation, run.state.tick, run.state.step, settled.received, took_s))

    @staticmethod
    def _say_how(plan: WorldPlan, alike: bool, reproducible: bool) -> None:
        if reproducible and not alike:
            log.warning("world %s: %s", plan.generation, plan.caution or DIFFERENTLY)

    def _finish(self, run: Run) -> None:
        """Publish the result once, and hold the final state: the world stays, others may still wait in it."""
        if not self._finished:
            self._phases.enter(Phase.FINISHING, FINISH_PREDICTED_S)
            unwritten = ""
            try:
                published = "published" if finish(run) else "already there"
                log.info("finished at step %d; the result was %s", run.state.step, published)
                run.writer.end(None)
                run.checkpoints.clear()
            except StorageError as error:  # a fault of this node's disk, not of the run
                unwritten = str(error)
                log.error("finished at step %d, but %s", run.state.step, unwritten)
            self._finished = True
            self._phases.enter(Phase.HOLDING)
            self._tell(RunFinished(run.order.run_id, run.state.tick, run.state.step, unwritten))
        self._phases.enter(Phase.HOLDING)

    def _leave(self) -> None:
        """Leave the world, if there is one."""
        world, self._world = self._world, None
        if world is not None:
            self._desk.over(world.generation)
            world.close()
            self._left.append(world)
            if len(self._left) > LEFT_MAX:
                self._left.pop(0).release()

    def _fail(self, order: LoadRun, error: JobError) -> None:
        """Report that the job failed here; the agent then ends this process."""
        log.error("%s", error)
        self._phases.enter(Phase.IDLE)
        message = error.message.removeprefix(f"{error.where}: ")
        # More memory elsewhere may do: that this machine's did not suffice says nothing of the tick.
        tick = None if isinstance(error, JobMemoryError) else self._part
        self._tell(RunFailed(order.run_id, error.where, message, error.remedy, tick))

    def _tell(self, report: Report) -> None:
        self._link.send(report)
