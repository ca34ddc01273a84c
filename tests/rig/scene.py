"""One row's chain, brought to the point where the fault belongs: everybody halted, nobody yet hit."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from rig.chain import RigChain, rig_chain
from rig.cpu import cpu_groups
from rig.garbage import Garbage
from rig.jobs import EVALUATE_EVERY, STEPS, Mode, Pace, Trouble, make_trouble, write_job
from rig.lan import Lan, lan
from rig.matrix import Fault, Phase, Role, Row
from rig.node import RigNode
from rig.stops import Point, Reached, Stop
from support.cgroups import CpuGroup
from support.waiting import until

NAMES = ("ada", "bob", "cem", "dan")
JOINER = "cem"
HALT_S = 60.0
ROLES_AT, AT = 15, 40
"""Committed steps: where roles are looked up when the fault needs them beforehand, and where it happens."""

BRISK_S = 0.005
SLOW_S = {Mode.REPRODUCIBLE: 0.1, Mode.DEFAULT: 0.2}
"""Of a batch: until everybody is back. A step of two nodes then takes some 0.2 s, a lone node's 0.4 s."""

TEN_YEARS_S = 10 * 365 * 86400.0

CHECKPOINT_S = 0.3
"""Between two checkpoints: a run takes some seconds."""

DISK_BYTES = 24 << 20

IN_THE_CODE = (Fault.OUT_OF_MEMORY, Fault.RAISES, Fault.NOT_A_NUMBER, Fault.FAILS_TWICE)
"""Faults of the job's code: the victim stands before it."""

POINTS = {
    Phase.EARLY: (Point.EXCHANGING, 0),
    Phase.MID_RUN: (Point.EXCHANGING, AT),
    Phase.EVALUATION: (Point.EVALUATING, 2 * EVALUATE_EVERY),
    Phase.TRANSFER: (Point.TRANSFERRING, 0),
    Phase.FORMING: (Point.FORMING, 0),
    Phase.REFORMING: (Point.FORMING, AT),
    Phase.CHECKPOINT: (Point.SAVING, ROLES_AT),
    Phase.COMMIT: (Point.EXCHANGING, AT + 1),
    Phase.LAST_STEP: (Point.EXCHANGING, STEPS - 1),
}
"""Where the victim's trainer stands when it is hit, and how many steps it has committed (at least)."""


def point_of(row: Row) -> tuple[Point, int]:
    """Return where the row's victim is hit."""
    point, step = POINTS[row.phase]
    before_code = row.fault in IN_THE_CODE and row.phase is Phase.MID_RUN
    return (Point.COMPUTING if before_code else point), step


@dataclass
class Scene:
    """A chain whose members are halted.

    Attributes:
        victim: who is hit; of a fault for all, the coordinator.
        others: who goes on without it.
        lost: who was hit before, and is out of it.
        where: where the victim's trainer stands; None when the fault is there from the start.
        apart: whether the halves never met before.
        garbage: who sends it.
        stops: of everybody who is halted.
    """

    row: Row
    net: Lan
    chain: RigChain
    pace: Pace
    groups: dict[str, CpuGroup]
    nodes: list[RigNode] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    lost: list[RigNode] = field(default_factory=list)
    apart: bool = False
    garbage: Garbage | None = None
    victim: RigNode = field(init=False)
    others: list[RigNode] = field(init=False)
    where: Reached | None = None

    def names(self) -> Sequence[str]:
        """Return the names of the row's machines."""
        return NAMES if self.row.fault is Fault.HALVES else NAMES[:3]

    def start(self, name: str) -> RigNode:
        """Start a node with its copy of the job."""
        row = self.row
        write_job(self.chain.prepare(name), self.pace, row.mode)
        if row.fault is Fault.DISK_FULL:
            self.chain.small_disk(name, DISK_BYTES)
        # A fault while the first world forms leaves fewer than there are; otherwise everybody is in it.
        fewer = 1 if row.phase in (Phase.FORMING, Phase.TRANSFER) or row.fault is Fault.OLD_DISK else 0
        if row.fault is Fault.HALVES:
            fewer = 2
        flags = ("--min-nodes", str(len(self.names()) - fewer))
        node = self.chain.start(
            self.net.place(name),
            *flags,
            clock_offset_s=-TEN_YEARS_S if name == self._skewed() else 0.0,
            checkpoint_every_s=CHECKPOINT_S,
            within=self.groups.get(name),
        )
        self.nodes.append(node)
        return node

    def end_garbage(self) -> None:
        """Have whoever sends garbage stop. Idempotent."""
        if self.garbage is not None:
            self.garbage.end()

    def release(self) -> None:
        """Let everybody who is halted go on."""
        for stop in self.stops:
            stop.release()

    # -- the way to the point --------------------------------------------------------------------------

    def arrive(self) -> None:
        """Start the chain and bring it to the row's phase."""
        self.pace.set(BRISK_S)
        match self.row.phase:
            case Phase.TRANSFER:
                self._arrive_at_transfer()
            case Phase.COMMIT:
                self._start_all()
                self._gather(Point.EXCHANGING, ROLES_AT)
                self._arrive_between_commits()
            case Phase.REFORMING:
                self._start_all()
                self._gather(Point.EXCHANGING, ROLES_AT)
                self._arrive_at_second_fault()
            case Phase.CHECKPOINT:
                self._start_all()
                self._gather(Point.EXCHANGING, ROLES_AT)
                self.stops = [self.chain.stop_at(self.victim, *POINTS[Phase.CHECKPOINT])]
                self.stops[0].reached(HALT_S)
            case Phase.EARLY if self.row.fault is Fault.HALVES:
                self._arrive_apart()
            case _:
                self._start_all()
                if self.row.fault is Fault.WORKERS_LEFT:
                    self._gather(Point.EXCHANGING, ROLES_AT)
                    for node in self.nodes:
                        make_trouble(node.folder, Trouble.WORKERS)
                self.stops = self._gather(*point_of(self.row), release=False)
                self._cast()
        found = [stop.found for stop in self.stops if stop.node == self.victim.name]
        self.where = found[0] if found else None

    def half(self) -> list[RigNode]:
        """Return the half with the victim."""
        return [self.victim, self.others[0]]

    def _skewed(self) -> str:
        """Return whose clock is wrong; there the first node is started first, and so coordinates."""
        if self.row.fault is not Fault.CLOCK_OFFSET:
            return ""
        return NAMES[0] if self.row.role is Role.COORDINATOR else NAMES[1]

    def _start_all(self) -> None:
        for name in self.names():
            node = self.start(name)
            if self._skewed() and name == NAMES[0]:
                until(node.leads, HALT_S, "the first node does not lead")
        for node in self.nodes:
            node.await_start()

    def _gather(self, point: Point, step: int, *, release: bool = True) -> list[Stop]:
        """Halt every node at a point; return their stops, to be released after the roles are known."""
        stops = [self.chain.stop_at(node, point, step) for node in self.nodes]
        for stop in stops:
            stop.reached(HALT_S)
        if release:
            self._cast()
            for stop in stops:
                stop.release()
        return stops

    def _roles(self) -> RigNode:
        until(lambda: sum(node.leads() for node in self.nodes) == 1, 5.0, "there is not one coordinator")
        return self.chain.leader()

    def _cast(self) -> None:
        """Choose the victim by its role; of the workers the one with the greatest id: it loses ties."""
        leader = self._roles()
        self.victim = self.chain.workers()[-1] if self.row.role is Role.WORKER else leader
        if self._skewed():
            self.victim = next(node for node in self.nodes if node.name == self._skewed())
            assert self.victim.leads() == (self.row.role is Role.COORDINATOR)
        self.others = [node for node in self.nodes if node is not self.victim]

    def _arrive_apart(self) -> None:
        """Two halves that never met: each elects, forms and trains; their terms are equal in number."""
        self.apart = True
        self.net.partition(NAMES[:2])
        self._start_all()
        self.victim, *self.others = self.nodes

    def _arrive_at_transfer(self) -> None:
        for name in self.names():
            if name != JOINER:
                self.start(name)
        for node in self.nodes:
            node.await_start()
        self._gather(Point.EXCHANGING, ROLES_AT)
        leader = self.chain.leader()
        self.pace.set(SLOW_S[self.row.mode])
        joiner = self.start(JOINER)
        self.victim = joiner if self.row.role is Role.WORKER else leader
        self.others = [node for node in self.nodes if node is not self.victim]
        self.stops = [self.chain.stop_at(node, Point.TRANSFERRING, 0) for node in self.nodes]
        for stop in self.stops:
            stop.reached(HALT_S)

    def _arrive_between_commits(self) -> None:
        """One rank, not the victim, does not see the commit that all others see."""
        blind = next(node for node in self.others if not node.leads())
        stops = [self.chain.stop_at(blind, Point.UNSEEN, AT)]
        stops += [self.chain.stop_at(node, *POINTS[Phase.COMMIT]) for node in self.nodes if node is not blind]
        for stop in stops:
            stop.reached(HALT_S)
        self.stops = stops

    def _arrive_at_second_fault(self) -> None:
        """A worker that is not the victim dies; the others halt as they form the next world."""
        first = next(node for node in self.others if not node.leads())
        hit = self.chain.stop_at(first, Point.EXCHANGING, AT)
        hit.reached(HALT_S)
        left = [node for node in self.nodes if node is not first]
        self.stops = [self.chain.stop_at(node, *POINTS[Phase.REFORMING]) for node in left]
        first.kill()
        for stop in self.stops:
            stop.reached(HALT_S)
        self.lost = [first]
        self.others = [node for node in left if node is not self.victim]


def set_scene(stack: ExitStack, row: Row) -> Scene:
    """Return the row's machines, not yet started, taken down with ``stack``; may raise `RigUnavailable`."""
    names = NAMES if row.fault is Fault.HALVES else NAMES[:3]
    net = stack.enter_context(lan(names))
    groups: dict[str, CpuGroup] = {}
    if row.fault is Fault.QUOTA_CHANGED:
        groups = stack.enter_context(cpu_groups(dict.fromkeys(names, 1.0)))
    chain = stack.enter_context(rig_chain())
    scene = Scene(row, net, chain, Pace(chain.folder / "pace"), groups)
    stack.callback(scene.end_garbage)
    return scene
