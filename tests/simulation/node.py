"""One simulated node: the real machine, a disk that outlives it, and a simulated trainer."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from daisychain.core.effects import (
    CloseLink,
    Dial,
    Effect,
    KillTrainer,
    Leave,
    Note,
    PersistIncarnation,
    PersistTerm,
    RecordJob,
    Send,
    StartTrainer,
    StopTrainer,
    Tell,
)
from daisychain.core.events import CandidateSeen, Event, JobsScanned, TimerFired, TrainerExited
from daisychain.core.ids import Address, ClusterId, Generation, NodeId, RunId, Term
from daisychain.core.jobs import JobCard
from daisychain.core.machine import Machine
from daisychain.core.messages import Heartbeat
from daisychain.core.node import NodeInfo
from daisychain.core.orders import FormWorld
from daisychain.core.settings import CoreSettings
from simulation.network import Network
from simulation.rooms import Rooms
from simulation.timeline import Timeline
from simulation.trainer import SimTrainer

MachineMaker = Callable[[NodeInfo, CoreSettings, Term, tuple[JobCard, ...], int, float], Machine]
CLUSTER = ClusterId("0123456789abcdef")


def make_machine(
    info: NodeInfo, settings: CoreSettings, term: Term, ledger: tuple[JobCard, ...], seed: int, now: float
) -> Machine:
    """Return the real one."""
    return Machine(info, CLUSTER, settings, term, ledger, seed, now)


class SimNode:
    """A machine that can be killed, restarted, frozen and thawed.

    Attributes:
        life: rises at every start and death; events of an earlier life never arrive.
        up: whether the process exists.
        frozen: whether it is stopped (its trainer too).
    """

    def __init__(
        self, index: int, network: Network, rooms: Rooms, time: Timeline, make: MachineMaker
    ) -> None:
        self.id = NodeId(f"{index + 1:032x}")
        self.name = f"n{index}"
        self.life = 0
        self.up = False
        self.frozen = False
        self.trainer: SimTrainer | None = None
        self.machine: Machine | None = None
        self.jobs: tuple[JobCard, ...] = ()
        self.steps: dict[RunId, int] = {}
        self.told: Heartbeat | None = None
        self.info = self._info(index, 0)
        self._index = index
        self._network = network
        self._rooms = rooms
        self._time = time
        self._make = make
        self._disk_term = Term(0, NodeId(""))
        self._disk_incarnation = 0
        self._disk_ledger: dict[RunId, JobCard] = {}
        self._inbox: list[Event] = []
        self._timer_at: float | None = None
        self._spins = 0
        self._spun_at = -1.0
        self._highest_term = Term(0, NodeId(""))
        self._highest_generation: Generation | None = None
        network.nodes[self.info.address] = self

    @staticmethod
    def _info(index: int, incarnation: int) -> NodeInfo:
        return NodeInfo(
            node_id=NodeId(f"{index + 1:032x}"),
            name=f"n{index}",
            incarnation=incarnation,
            machine_id=f"machine {index}",
            address=Address(f"10.0.0.{index + 1}", 7000),
            version="0.1.0",
            torch_version="2.13.0",
            platform="linux",
            cores=2,
            memory_bytes=1 << 30,
            device="cpu",
        )

    def start(self, settings: CoreSettings, seeds: list[Address]) -> None:
        """Start the process from what is on its disk."""
        if self.up:
            return
        self.life += 1
        self.up, self.frozen, self._timer_at, self._inbox = True, False, None, []
        self.info = self._info(self._index, self._disk_incarnation + 1)
        self.machine = self._make(
            self.info,
            settings,
            self._disk_term,
            tuple(self._disk_ledger.values()),
            self._time.random.getrandbits(32),
            self._time.now,
        )
        self._time.tell(f"{self.name} starts, incarnation {self.info.incarnation}, term {self._disk_term}")
        self.post(JobsScanned(self.jobs))
        for address in seeds:
            self.post(CandidateSeen("seed", address))

    def kill(self) -> None:
        """SIGKILL of the agent; its trainer dies with it."""
        if not self.up:
            return
        self._time.tell(f"{self.name} is killed")
        self._end()

    def freeze(self, agent_only: bool = False) -> None:
        """SIGSTOP of agent and trainer, or of the agent alone."""
        if self.up and not self.frozen:
            self._time.tell(f"{self.name} is frozen{' (its agent alone)' if agent_only else ''}")
            self.frozen = True
            if self.trainer is not None and not agent_only:
                self.trainer.frozen = True

    def thaw(self) -> None:
        """SIGCONT: whatever lies in its sockets is read now."""
        if not self.up or not self.frozen:
            return
        self._time.tell(f"{self.name} is thawed")
        self.frozen = False
        if self.trainer is not None and self.trainer.frozen:
            self.trainer.thaw()
        inbox, self._inbox = self._inbox, []
        for event in inbox:
            if self.up:
                self._handle(event)
        if self.up:
            self._handle(TimerFired())

    def post(self, event: Event) -> None:
        """Something happens to the node."""
        if not self.up:
            return
        if self.frozen:
            if len(self._inbox) < 4096:
                self._inbox.append(event)
        else:
            self._handle(event)

    def post_from(self, trainer: SimTrainer, event: Event) -> None:
        """A trainer says something; one of an earlier life is not heard."""
        if trainer is self.trainer:
            if isinstance(event, TrainerExited):  # what it said just before it died comes before that
                self.trainer = None
            self.post(event)

    def _handle(self, event: Event) -> None:
        machine = self.machine
        if machine is None:
            return
        for effect in machine.handle(event, self._time.now):
            self._perform(effect)
            if not self.up:
                return
        deadline = machine.next_deadline()
        if deadline is not None and (self._timer_at is None or deadline < self._timer_at):
            self._set_timer(deadline)

    def _set_timer(self, deadline: float) -> None:
        self._timer_at, life = deadline, self.life

        def fire() -> None:
            if self.life != life or self._timer_at != deadline or self.machine is None:
                return
            self._timer_at = None
            if self.frozen:
                return
            due = self.machine.next_deadline()
            if due is not None and due > self._time.now:
                self._set_timer(due)
                return
            self._spins = self._spins + 1 if self._spun_at == self._time.now else 0
            self._spun_at = self._time.now
            if self._spins > 8:
                self._time.fail(f"{self.name} spins: its deadline {due} does not move")
            self._handle(TimerFired())

        self._time.at(deadline, fire)

    def _end(self) -> None:
        self.up, self.frozen, self.machine, self.told = False, False, None, None
        self.life += 1
        trainer, self.trainer = self.trainer, None
        if trainer is not None:
            trainer.exit("its agent died")
        self._network.died(self)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case PersistTerm(term):
                if term < self._disk_term:
                    self._time.fail(f"{self.name} writes term {term} over {self._disk_term}")
                self._disk_term = term
            case PersistIncarnation(incarnation):
                self._disk_incarnation = incarnation
            case RecordJob(card):
                self._disk_ledger[card.run_id] = card
            case Dial(address):
                self._network.dial(self, address)
            case CloseLink(node_id, reason):
                self._time.tell(f"{self.name} closes its link to {node_id[-2:]}: {reason}")
                self._network.close(self, node_id)
            case Send(node_id, message):
                if isinstance(message, Heartbeat):
                    self._check(message)
                self._network.send(self, node_id, message)
            case StartTrainer(card):
                if self.trainer is not None:
                    self._time.fail(f"{self.name} starts a second trainer")
                self._time.tell(f"{self.name} starts a trainer of {card.run_id}")
                self.trainer = SimTrainer(self, card, self.steps[card.run_id], self._rooms, self._time)
            case StopTrainer(_, reason) | KillTrainer(_, reason):
                self._stop_trainer(reason, 0.02 if isinstance(effect, StopTrainer) else 0.0)
            case Tell(run_id, order):
                if isinstance(order, FormWorld):
                    self._check_generation(order)
                if self.trainer is not None and self.trainer.run_id == run_id:
                    self.trainer.order(order)
            case Note(_, text):
                self._time.tell(f"{self.name}: {text}")
            case Leave(reason):
                self._time.tell(f"{self.name} has left: {reason}")
                self._end()
            case _:
                assert_never(effect)

    def _stop_trainer(self, reason: str, delay_s: float) -> None:
        trainer = self.trainer
        if trainer is not None:
            self._time.tell(f"{self.name} ends its trainer: {reason}")
            self._time.after(delay_s, lambda: trainer.exit(reason))

    def _check(self, heartbeat: Heartbeat) -> None:
        """What a node tells: its term is on disk and never falls."""
        self.told = heartbeat
        term = heartbeat.status.term
        if term < self._highest_term:
            self._time.fail(f"{self.name} tells term {term} after {self._highest_term}")
        if term != self._disk_term:
            self._time.fail(f"{self.name} tells term {term} with {self._disk_term} on its disk")
        self._highest_term = term

    def _check_generation(self, order: FormWorld) -> None:
        """Its trainer is only ever given a higher generation, restarts included."""
        generation = order.plan.generation
        if self._highest_generation is not None and generation <= self._highest_generation:
            self._time.fail(f"{self.name} enters {generation} after {self._highest_generation}")
        self._highest_generation = generation
