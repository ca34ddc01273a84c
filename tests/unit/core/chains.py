"""What the core's unit tests build their situations from."""

from __future__ import annotations

from dataclasses import replace

from daisychain.core.effects import Effect, Send
from daisychain.core.events import Event, JobsScanned, LinkUp, Received, TimerFired, TrainerReported
from daisychain.core.ids import Address, ClusterId, Generation, NodeId, RunId, Term
from daisychain.core.jobs import JobCard
from daisychain.core.machine import Machine
from daisychain.core.messages import Heartbeat, HeartbeatAck, Message
from daisychain.core.node import NodeInfo, NodeStatus, TrainerState, TrainerStatus
from daisychain.core.reports import Phase, Pong, Report, TrainerReady
from daisychain.core.settings import CoreSettings
from daisychain.core.shares import Capacity
from daisychain.core.world import Member, WorldPlan

CLUSTER = ClusterId("0123456789abcdef")
SETTINGS = CoreSettings()
NOBODY = Term(0, NodeId(""))
RUN = RunId("aaaa-1")
CARD = JobCard(RUN, "digits", "d" * 64, 10.0)
CAPACITY = Capacity(0.01, 0.001)


def node_id(number: int) -> NodeId:
    """Return the id of node ``number``."""
    return NodeId(f"{number:032x}")


def info(number: int, incarnation: int = 1) -> NodeInfo:
    """Return the facts of node ``number``."""
    return NodeInfo(
        node_id=node_id(number),
        name=f"n{number}",
        incarnation=incarnation,
        machine_id=f"machine {number}",
        address=Address(f"10.0.0.{number}", 7000),
        version="0.1.0",
        torch_version="2.13.0+cpu",
        platform="linux",
        cores=2,
        memory_bytes=1 << 30,
        device="cpu",
    )


def generation(counter: int, term: Term | None = None) -> Generation:
    """Return a generation of node 1's first term."""
    return Generation(term or Term(1, node_id(1)), counter, 7)


def plan(counter: int, numbers: tuple[int, ...], term: Term | None = None) -> WorldPlan:
    """Return a plan for the given nodes."""
    members = tuple(Member(node_id(n), f"n{n}", f"10.0.0.{n}", CAPACITY) for n in numbers)
    return WorldPlan(generation(counter, term), RUN, members, "a test")


READY = TrainerStatus(state=TrainerState.READY, run_id=RUN, capacity=CAPACITY)


def status(
    term: Term = NOBODY,
    reachable: tuple[int, ...] = (),
    trainer: TrainerStatus = TrainerStatus(),  # noqa: B008 - frozen
    leading: bool = False,
) -> NodeStatus:
    """Return a status of a first life."""
    ids = tuple(node_id(number) for number in reachable)
    return NodeStatus(1, term, leading, ids, (), trainer)


class Bench:
    """A machine under test: node 1, in the hands of a test."""

    def __init__(self, number: int = 1, term: Term = NOBODY, ledger: tuple[JobCard, ...] = ()) -> None:
        self.now = 0.0
        self.machine = Machine(info(number), CLUSTER, SETTINGS, term, ledger, 1, 0.0)
        self._seq = 0

    def do(self, event: Event) -> list[Effect]:
        """Hand an event over."""
        return self.machine.handle(event, self.now)

    def wait(self, seconds: float) -> list[Effect]:
        """Let time pass, timers fire in time."""
        until, effects = self.now + seconds, list[Effect]()
        while True:
            deadline = self.machine.next_deadline()
            if deadline is None or deadline > until:
                break
            self.now = max(self.now, deadline)
            effects += self.do(TimerFired())
        self.now = until
        return effects

    def link(self, number: int, incarnation: int = 1) -> list[Effect]:
        """A dial reached node ``number``."""
        facts = info(number, incarnation)
        return self.do(LinkUp(facts, facts.address, "10.0.0.1"))

    def hear(self, number: int, message: Message) -> list[Effect]:
        """Node ``number`` says something."""
        return self.do(Received(node_id(number), message))

    def beat(self, number: int, told: NodeStatus) -> list[Effect]:
        """Node ``number`` tells its status, and answers ours."""
        self._seq += 1
        effects = self.hear(number, Heartbeat(self._seq, told))
        return effects + self.hear(number, HeartbeatAck(self._seq))

    def keep(self, number: int, told: NodeStatus, seconds: float) -> list[Effect]:
        """Let time pass while node ``number`` tells its status regularly."""
        effects, until = list[Effect](), self.now + seconds
        while self.now < until:
            effects += self.wait(min(SETTINGS.heartbeat_s, until - self.now))
            effects += self.beat(number, told)
        return effects

    def report(self, report: Report) -> list[Effect]:
        """The trainer says something."""
        return self.do(TrainerReported(RUN, report))

    def ready(self) -> list[Effect]:
        """The trainer has loaded the run."""
        return self.report(TrainerReady(RUN, CAPACITY, "same", 0, 0, 100, 10))

    def pong(self, phase: Phase = Phase.EXCHANGING, in_phase_s: float = 0.0) -> list[Effect]:
        """The trainer answers."""
        return self.report(Pong(1, phase, in_phase_s, 0.1 if phase is Phase.COMPUTING else 0.0))


def of(kind: type, effects: list[Effect]) -> list[Effect]:
    """Return the effects of one kind."""
    return [effect for effect in effects if isinstance(effect, kind)]


def with_trainer(told: NodeStatus, trainer: TrainerStatus) -> NodeStatus:
    """Return the status with another trainer."""
    return replace(told, trainer=trainer)


LEADER = Term(4, node_id(2))


def told(effects: list[Effect]) -> list[NodeStatus]:
    """Return the statuses that were sent, in order."""
    sent = [effect.message for effect in of(Send, effects) if isinstance(effect, Send)]
    return [message.status for message in sent if isinstance(message, Heartbeat)]


def follower() -> Bench:
    """Return node 1, which follows node 2 and has the job."""
    bench = Bench()
    bench.do(JobsScanned((CARD,)))
    bench.link(2)
    bench.beat(2, replace(status(LEADER, (1, 2), leading=True), current=RUN))
    return bench
