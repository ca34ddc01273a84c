"""One simulated node: the real machine, a disk that outlives it, and a simulated trainer."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from daisychain.core.effects import (
    CloseLink,
    Dial,
    DropFetch,
    Effect,
    Fetch,
    KillTrainer,
    Leave,
    Note,
    PaceBundles,
    Part,
    PersistIncarnation,
    PersistTerm,
    RecordJob,
    Send,
    StartTrainer,
    StopTrainer,
    Tell,
)
from daisychain.core.events import CandidateSeen, Event, JobsScanned, TimerFired, TrainerExited
from daisychain.core.ids import Address, ClusterId, NodeId, RunId, Term
from daisychain.core.jobs import JobCard, JobState
from daisychain.core.machine import Machine
from daisychain.core.messages import Heartbeat, PlanWorld
from daisychain.core.node import HeldResult, NodeInfo
from daisychain.core.orders import FormWorld
from daisychain.core.results import FolderReport
from daisychain.core.settings import CoreSettings
from simulation.disk import Disk
from simulation.folders import LOOK_S, SimFetch
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
        slowness: how many times longer it computes than the quickest.
        commits: steps that its trainers ever committed.
        hurts: how often something was done to it.
        fuse: it is killed after so many more of its effects, between one and the next; None = it is not.
    """

    def __init__(
        self, index: int, network: Network, rooms: Rooms, time: Timeline, make: MachineMaker
    ) -> None:
        self.id = NodeId(f"{index + 1:032x}")
        self.name = f"n{index}"
        self.life = 0
        self.up = False
        self.frozen = False
        self.slowness = 1 + index % 3
        self.commits = 0
        self.hurts = 0
        self.fuse: int | None = None
        self.trainer: SimTrainer | None = None
        self.fetches: dict[Part, SimFetch] = {}
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
        self.disk = Disk(self.name, time)
        self._inbox: list[Event] = []
        self._timer_at: float | None = None
        self._spins = 0
        self._spun_at = -1.0
        self._ahead_s = 0.0  # how far its clock is ahead of the simulated time
        self._stopped_at: float | None = None  # since when its clock stands still
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

    @property
    def sound(self) -> bool:
        """Whether nothing holds it up."""
        return self.up and not self.frozen and (self.trainer is None or not self.trainer.frozen)

    def found(self, card: JobCard) -> JobCard:
        """Return the card that its scanner makes of a folder that was fetched: what its ledger knows."""
        return self.disk.ledger.get(card.run_id, replace(card, state=JobState.QUEUED, step=0))

    def look(self) -> None:
        """It looks into its jobs folder."""
        digests = {card.digest for card in self.jobs}
        results = (result for digest, result in self.disk.results.items() if digest in digests)
        self.post(JobsScanned(self.jobs, FolderReport(tuple(results))))

    def publish(self, run_id: RunId, digest: str) -> None:
        """Its trainer puts the run's result into the job's folder: each member's has other bytes."""
        known = self.disk.results.get(digest)
        if known is None or known.run_id != run_id:
            bytes_ = hashlib.sha256(f"{run_id} {self.id}".encode()).hexdigest()
            self.disk.results[digest] = HeldResult(run_id, bytes_)
        life = self.life
        self._time.after(LOOK_S, lambda: self.look() if self.life == life else None)

    def clock(self) -> float:
        """Return its own monotonic time."""
        return (self._time.now if self._stopped_at is None else self._stopped_at) + self._ahead_s

    def cards(self) -> tuple[JobCard, ...]:
        """Return the runs that it knows of."""
        return () if self.machine is None else self.machine.view(self.clock()).jobs

    def start(self, settings: CoreSettings, seeds: list[Address]) -> None:
        """Start the process from what is on its disk."""
        if self.up:
            return
        self.life += 1
        self.up, self.frozen, self._timer_at, self._inbox = True, False, None, []
        self.fuse = self._stopped_at = None
        self.info = self._info(self._index, self.disk.incarnation + 1)
        self.machine = self._make(
            self.info,
            settings,
            self.disk.term,
            tuple(self.disk.ledger.values()),
            self._time.random.getrandbits(32),
            self.clock(),
        )
        self._time.tell(f"{self.name} starts, incarnation {self.info.incarnation}, term {self.disk.term}")
        self.look()
        for address in seeds:
            self.post(CandidateSeen("seed", address))

    def kill(self) -> None:
        """SIGKILL of the agent; its trainer dies with it."""
        if not self.up:
            return
        self._time.tell(f"{self.name} is killed")
        self._end()

    def freeze(self, agent_only: bool = False, clock_too: bool = False) -> None:
        """SIGSTOP of agent and trainer, or of the agent alone; or the machine sleeps, its clock too."""
        if self.up and not self.frozen:
            kind = " (its agent alone)" if agent_only else " (its clock too)" if clock_too else ""
            self._time.tell(f"{self.name} is frozen{kind}")
            self.frozen = True
            self.hurts += 1
            if clock_too:
                self._stopped_at = self._time.now
            if self.trainer is not None and not agent_only:
                self.trainer.frozen = True

    def leap(self, seconds: float) -> None:
        """Its clock leaps ahead."""
        if self.up:
            self._time.tell(f"the clock of {self.name} leaps {seconds:.3f} s ahead")
            self._ahead_s += seconds
            self._timer_at = None
            self.hurts += 1
            if not self.frozen:
                self._handle(TimerFired())

    def thaw(self) -> None:
        """SIGCONT: whatever lies in its sockets is read now."""
        if not self.up or not self.frozen:
            return
        self._time.tell(f"{self.name} is thawed")
        self.frozen = False
        self.hurts += 1
        if self._stopped_at is not None:
            self._ahead_s -= self._time.now - self._stopped_at
            self._stopped_at = None
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
        for effect in machine.handle(event, self.clock()):
            self._burn()
            if not self.up:
                return
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
            if due is not None and due > self.clock():
                self._set_timer(due)
                return
            self._spins = self._spins + 1 if self._spun_at == self._time.now else 0
            self._spun_at = self._time.now
            if self._spins > 8:
                self._time.fail(f"{self.name} spins: its deadline {due} does not move")
            self._handle(TimerFired())

        when = deadline - self._ahead_s
        while when + self._ahead_s < deadline:  # rounded away: its clock would not be there yet
            when = math.nextafter(when, math.inf)
        self._time.at(when, fire)

    def _burn(self) -> None:
        """Power fails between two effects of one event: what came before is done, the rest never is."""
        if self.fuse is not None and self.up:
            if self.fuse == 0:
                self.kill()
            else:
                self.fuse -= 1

    def _end(self) -> None:
        self.up, self.frozen, self.machine, self.told = False, False, None, None
        self.life += 1
        trainer, self.trainer = self.trainer, None
        self.fetches.clear()
        if trainer is not None:
            trainer.exit("its agent died")
        self._network.died(self)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case PersistTerm(term):
                self.disk.write_term(term)
            case PersistIncarnation(incarnation):
                self.disk.write_incarnation(incarnation)
            case RecordJob(card):
                self.disk.record(card)
            case Dial(address):
                self._network.dial(self, address)
            case CloseLink(node_id, reason):
                self._time.tell(f"{self.name} closes its link to {node_id[-2:]}: {reason}")
                self._network.close(self, node_id)
            case Send(node_id, message):
                if isinstance(message, Heartbeat):
                    self.told = message
                    self._rooms.promises.tells(self, message, self.disk.term)
                elif isinstance(message, PlanWorld):
                    self._rooms.promises.issues(self, message.plan)
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
                    self._rooms.promises.gives(self, order.plan)
                if self.trainer is not None and self.trainer.run_id == run_id:
                    self.trainer.order(order)
            case Fetch():
                self._fetch(effect)
            case DropFetch(_, part):
                if part in self.fetches:
                    self.fetches.pop(part).drop()
            case PaceBundles():
                pass
            case Note(_, text):
                self._time.tell(f"{self.name}: {text}")
            case Leave(reason):
                self._time.tell(f"{self.name} has left: {reason}")
                self._end()
            case _:
                assert_never(effect)

    def _fetch(self, order: Fetch) -> None:
        """Begin to fetch a folder or a result, or go on from other peers."""
        if order.part in self.fetches:
            self.fetches[order.part].drop()
        names = ", ".join(source.name for source in order.sources)
        self._time.tell(f"{self.name} fetches the {order.part} of {order.card.run_id} from {names}")
        self.fetches[order.part] = SimFetch(self, order, self._network, self._time)

    def _stop_trainer(self, reason: str, delay_s: float) -> None:
        trainer = self.trainer
        if trainer is not None:
            self._time.tell(f"{self.name} ends its trainer: {reason}")
            if delay_s:
                trainer.do(trainer.save)
            self._time.after(delay_s, lambda: trainer.exit(reason))
