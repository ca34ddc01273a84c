"""The simulated trainer: it obeys orders like the real one; its model is a digest of what went into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

from daisychain.core.events import TrainerExited, TrainerReported
from daisychain.core.ids import Generation, NodeId
from daisychain.core.jobs import JobCard
from daisychain.core.orders import FormWorld, LeaveWorld, LoadRun, Order, PeerBlobs, Ping, Shutdown
from daisychain.core.reports import (
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
from daisychain.core.shares import Capacity
from daisychain.core.world import WorldPlan
from simulation.content import Part, blank, part_of
from simulation.parts import REMEDY, WHAT, WHERE
from simulation.timeline import Timeline

if TYPE_CHECKING:
    from simulation.node import SimNode
    from simulation.rooms import Room, Rooms

REPORT_DELAY_S = 0.0005

SAVE_EVERY_S, SAVE_S = 0.25, 0.03
"""Between two checkpoints, and from one's beginning until it is on the disk."""


class SimTrainer:
    """One trainer process.

    Attributes:
        step: committed steps.
        content: what these steps left in its model.
        prepared: the step whose whole gradient it holds uncommitted, and the content with it; None when none.
        steps: of the whole run.
        room: the gloo world that it is in; None when in none.
        loaded: whether it has reported to be ready.
        failed: whether it has reported that the run failed here.
        frozen: stopped (SIGSTOP): takes no order, answers nothing, computes nothing.
    """

    def __init__(self, node: SimNode, card: JobCard, steps: int, rooms: Rooms, time: Timeline) -> None:
        self.node = node
        self.run_id = card.run_id
        self.digest = card.digest
        self.steps = steps
        self.step, self.content = node.disk.saved.get(card.run_id, (0, blank(card.run_id)))
        self.prepared: tuple[int, str] | None = None
        self.room: Room | None = None
        self.frozen = False
        self.dead = False
        self.plan: WorldPlan | None = None
        self._highest: Generation | None = None
        self._rooms = rooms
        self._time = time
        self.loaded = False
        self.failed = False
        self._finished = False
        self._waiting: list[Callable[[], None]] = []
        self._told_at = -1.0
        self._saved_at = time.now
        time.after(time.random.uniform(0.1, 1.0), lambda: self.do(self._load))

    @property
    def node_id(self) -> NodeId:
        """Of the node whose trainer it is."""
        return self.node.id

    def order(self, order: Order) -> None:
        """The agent gives an order."""
        self._time.after(REPORT_DELAY_S, lambda: self.do(lambda: self._obey(order)))

    def exit(self, reason: str) -> None:
        """The process ends, whatever it did."""
        if self.dead:
            return
        self.dead = True
        self._leave()
        event = TrainerExited(self.run_id, reason)
        self._time.after(REPORT_DELAY_S, lambda: self.node.post_from(self, event))

    def thaw(self) -> None:
        """SIGCONT: everything that waited happens now."""
        self.frozen = False
        waiting, self._waiting = self._waiting, []
        for what in waiting:
            self.do(what)

    def do(self, what: Callable[[], None]) -> None:
        """Do something in the process: later when it is frozen, never when it is dead."""
        if self.dead:
            return
        if self.frozen:
            self._waiting.append(what)
        else:
            what()

    def _load(self) -> None:
        self.loaded = True
        capacity = Capacity(0.01, 0.001 * self.node.slowness)
        self._report(TrainerReady(self.run_id, capacity, "same", self.step, self.step, self.steps, 10))

    def _obey(self, order: Order) -> None:
        match order:
            case FormWorld():
                self._form(order)
            case PeerBlobs():
                if self.plan is not None and self.plan.generation == order.generation and self.room is None:
                    expected = tuple(self._blob(m.node_id, order.generation) for m in self.plan.members)
                    if order.blobs != expected:
                        self._time.fail(f"{self.node.name}: blobs of another world in {order.generation}")
                    self._rooms.join(self, self.plan)
            case LeaveWorld():
                if self.plan is not None and self.plan.generation == order.generation:
                    self.plan = None
                    self._leave()
            case Ping():
                room = self.room
                hears = room is not None and room.flows()
                generation = room.generation if room is not None and hears else None
                self._report(Pong(order.seq, self._phase(), 0.0, 0.0, generation))
            case Shutdown():
                self.exit("asked to")
            case LoadRun():
                pass
            case _:
                assert_never(order)

    def _form(self, order: FormWorld) -> None:
        plan = order.plan
        if self._highest is not None and plan.generation <= self._highest:
            return
        if not self.loaded:
            self._time.fail(f"{self.node.name} was given a world before it was ready")
        if self.failed:
            self._time.fail(f"{self.node.name} was given a world after the run failed there")
        self._highest, self.plan = plan.generation, plan
        self._leave()
        rank = plan.rank_of(self.node.id)
        if rank is None:
            self._time.fail(f"{self.node.name} was given a world of others, {plan.generation}")
            return
        self._report(LocalBlob(plan.generation, rank, self._blob(self.node.id, plan.generation)))
        self._time.after(order.timeout_s, lambda: self.do(lambda: self._give_up(plan)))

    def _give_up(self, plan: WorldPlan) -> None:
        if self.plan is plan and (self.room is None or not self.room.formed):
            self.broken("not formed in time")

    @staticmethod
    def _blob(node_id: str, generation: Generation) -> bytes:
        return f"{node_id} {generation} {generation.nonce}".encode()

    def part(self) -> Part:
        """Return what it computes of each batch, by the plan that it was given itself."""
        rank = None if self.plan is None else self.plan.rank_of(self.node.id)
        if self.plan is None or rank is None:
            self._time.fail(f"{self.node.name} steps without a plan")
            return 0, 0
        return part_of(self.plan, rank)

    def formed(self, room: Room, step: int, content: str) -> None:
        """All members hold one state: that of the most advanced one, or its own prepared step."""
        behind = step > self.step
        received = behind and self.prepared != (step, content)
        if behind and not received:
            self._apply()
        else:
            self._hold(step, content)
        self.prepared = None
        self.do(lambda: self._enter(room, step, received))

    def _enter(self, room: Room, step: int, received: bool) -> None:
        if self.room is not room:
            return
        self._report(WorldFormed(room.generation, step, step, received, 0.01))
        self._told_at = -1.0
        if self.step >= self.steps:
            self._finish()

    def commit(self, room: Room, step: int) -> None:
        """The rider of ``step`` completed here."""
        if self.prepared is None or self.prepared[0] != step:
            self._time.fail(f"{self.node.name} commits step {step}, prepared {self.prepared}")
        self._apply()
        self.node.commits += 1
        if self._time.now >= self._saved_at + SAVE_EVERY_S:
            self._saved_at, copied = self._time.now, (self.step, self.content)
            self._time.after(SAVE_S, lambda: self.do(lambda: self._write(copied)))
        if self._time.now >= self._told_at + 0.1:
            self._told_at = self._time.now
            self._report(Progress(room.generation, step, step, self.steps, 0, 1.0, 32, 0.05, (), 1.0))
        if self.step >= self.steps:
            self._finish()

    def _apply(self) -> None:
        """The optimizer takes the prepared step."""
        if self.prepared is not None:
            step, content = self.prepared
            if step != self.step + 1:
                self._time.fail(f"{self.node.name} commits step {step} after {self.step}")
            self.prepared = None
            self._hold(step, content)

    def _hold(self, step: int, content: str) -> None:
        self._rooms.promises.holds(self, step, content)
        self.step, self.content = step, content

    def save(self) -> None:
        """Write a last checkpoint: its end is asked for."""
        self._write((self.step, self.content))

    def _write(self, copied: tuple[int, str]) -> None:
        if not self._finished:
            self.node.disk.saved[self.run_id] = copied

    def broken(self, reason: str) -> None:
        """The world is no more."""
        if self.plan is None:
            return
        generation, self.plan = self.plan.generation, None
        self._leave()
        self._report(WorldBroken(generation, self.step, self.step, False, reason))

    def fail(self, step: int) -> None:
        """Its part of ``step`` cannot be computed here."""
        self._time.tell(f"{self.node.name} fails at step {step}")
        self.failed, self.plan = True, None
        self._leave()
        self._report(RunFailed(self.run_id, WHERE, WHAT, REMEDY, step))

    def notice(self, room: Room) -> None:
        """A peer's connection closed."""
        self.do(lambda: self.broken("connection closed by peer") if self.room is room else None)

    def _finish(self) -> None:
        self._finished = True
        self.node.disk.saved.pop(self.run_id, None)
        self.node.publish(self.run_id, self.digest)
        self._report(RunFinished(self.run_id, self.step, self.step))

    def _leave(self) -> None:
        room, self.room = self.room, None
        if room is not None:
            room.left(self)

    def _phase(self) -> Phase:
        if not self.loaded:
            return Phase.LOADING
        if self._finished:
            return Phase.HOLDING
        if self.room is not None and self.room.formed:
            return Phase.EXCHANGING
        return Phase.IDLE if self.plan is None else Phase.FORMING

    def _report(self, report: Report) -> None:
        event = TrainerReported(self.run_id, report)
        self._time.after(REPORT_DELAY_S, lambda: self.node.post_from(self, event))
