"""The storm's weather: which fault when, drawn from a seed, and how each is done and undone."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rig.chain import RigChain
from rig.lan import Lan
from rig.matrix import Fault
from rig.node import RigNode
from support.cgroups import CpuGroup

QUOTA_CPUS, FULL_CPUS = 0.25, 2.0


@dataclass(frozen=True)
class Sky:
    """What a fault may touch."""

    chain: RigChain
    net: Lan
    nodes: Sequence[RigNode]
    groups: dict[str, CpuGroup]

    def others(self, victim: RigNode) -> list[RigNode]:
        return [node for node in self.nodes if node is not victim]


Act = Callable[[Sky, RigNode], object]


@dataclass(frozen=True, slots=True)
class Bad:
    """A fault: how it begins, and how it ends after ``lasts_s``."""

    begin: Act
    end: Act
    lasts_s: float = 5.0


def _start_again(_: Sky, victim: RigNode) -> None:
    if not victim.running:
        victim.start()


def _leave(_: Sky, victim: RigNode) -> None:
    victim.terminate()
    victim.process.wait(10.0)


def _part(sky: Sky, victim: RigNode) -> None:
    sky.net.partition([victim.name, sky.others(victim)[0].name])


def _join(sky: Sky, victim: RigNode) -> None:
    partner, *rest = sky.others(victim)
    for inner in (victim, partner):
        for outer in rest:
            sky.net.heal_pair(inner.name, outer.name)


def _mute(sky: Sky, victim: RigNode) -> None:
    for other in sky.others(victim):
        sky.net.cut_one_way(victim.name, other.name)


def _unmute(sky: Sky, victim: RigNode) -> None:
    for other in sky.others(victim):
        sky.net.heal_pair(victim.name, other.name)


def _has_trainer(victim: RigNode, act: Callable[[], object]) -> None:
    with contextlib.suppress(AssertionError):  # one that just starts has none yet, and nothing to lose
        act()


def _thaw(_: Sky, victim: RigNode) -> None:
    victim.thaw()


KINDS: dict[Fault, Bad] = {
    Fault.NODE_KILLED: Bad(lambda _, v: v.kill(), _start_again),
    Fault.AGENT_KILLED: Bad(lambda _, v: v.kill_agent(), _start_again),
    Fault.TRAINER_KILLED: Bad(lambda _, v: _has_trainer(v, v.kill_trainer), lambda _, v: None),
    Fault.NODE_FROZEN: Bad(lambda _, v: v.freeze(), _thaw),
    Fault.AGENT_FROZEN: Bad(lambda _, v: v.freeze(trainer=False), _thaw),
    Fault.TRAINER_FROZEN: Bad(lambda _, v: _has_trainer(v, lambda: v.freeze(agent=False)), _thaw),
    Fault.LINK_CUT: Bad(lambda s, v: s.net.cut(v.name), lambda s, v: s.net.heal(v.name)),
    Fault.ONE_WAY_CUT: Bad(_mute, _unmute),
    Fault.NO_ROUTE: Bad(
        lambda s, v: s.net.cut_pair(v.name, s.others(v)[0].name),
        lambda s, v: s.net.heal_pair(v.name, s.others(v)[0].name),
    ),
    Fault.HALVES: Bad(_part, _join, lasts_s=4.0),
    Fault.LEAVES: Bad(_leave, _start_again),
    Fault.QUOTA_CHANGED: Bad(
        lambda s, v: s.groups[v.name].allow(QUOTA_CPUS), lambda s, v: s.groups[v.name].allow(FULL_CPUS)
    ),
}

LEFT_OUT = {
    Fault.WORKERS_LEFT: "a job of its own, which forks",
    Fault.OUT_OF_MEMORY: "the node stands by for the rest of the run",
    Fault.RAISES: "likewise",
    Fault.NOT_A_NUMBER: "likewise",
    Fault.FAILS_TWICE: "ends the run",
    Fault.DISK_FULL: "a disk of its own; it stops no training",
    Fault.ALL_KILLED: "ends what is measured; the matrix has it",
    Fault.OLD_DISK: "needs an earlier run",
    Fault.GARBAGE: "is aimed at a world that forms",
    Fault.CANCELLED: "ends the run",
    Fault.CLOCK_OFFSET: "the storm's own clock",
}
"""Why these kinds of the rig blow in the matrix only."""


@dataclass(frozen=True, slots=True)
class Gust:
    """One fault of the storm: when (seconds from its begin), what, and at which node."""

    at_s: float
    fault: Fault
    victim: int


def draw(seed: int, seconds: float, per_hour: float, nodes: int) -> list[Gust]:
    """Return a Poisson process of faults, given its number: uniform moments, in order.

    Kinds come from a shuffled deck, so that none is seen twice before all were. The last moments are left
    free, so that every fault is undone, and felt, within the storm.
    """
    dice = random.Random(seed)
    count = max(1, -int(-seconds * per_hour // 3600))
    moments = sorted(dice.uniform(0.0, max(1.0, seconds - 15.0)) for _ in range(count))
    deck: list[Fault] = []
    gusts = []
    for at_s in moments:
        if not deck:
            deck = list(KINDS)
            dice.shuffle(deck)
        gusts.append(Gust(at_s, deck.pop(), dice.randrange(nodes)))
    return gusts
