"""Machines of unequal speed: the chain, DDP split evenly, DDP split by hand, and each machine by itself."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.hetero import models
from bench.hetero.chain import ChainTraining
from bench.hetero.marks import median_step_s, ratio
from bench.hetero.plain import PORT, Ddp, PlainLoop, PlainTraining
from bench.hetero.turns import Contestant, Pace, rounds, steady, turn
from rig.chain import rig_chain
from rig.cpu import Machine, cpu_groups, unbound_at_the_end
from rig.lan import lan
from support.cgroups import PERIOD_US, CpuGroup
from support.waiting import until

BATCH = 546
SAMPLES = 8 * BATCH

SETTLE_STEPS, FIRST, LAST = 20, 11, 40
"""Steps before a speed is halved; those after it whose median counts."""

HALVED_S = 120.0
CHAIN, EVEN, HAND, SOLO = ChainTraining.name, "DDP, even split", "DDP, split by hand", PlainLoop.name


@dataclass(frozen=True)
class Mix:
    """Machines by their speeds.

    Attributes:
        name: the speeds as people say them.
        cpus: of each machine, in CPUs; together fewer than this machine has: each gets what its quota says.
        period_us: of the quotas: the shortest with which each of them is 1 ms or more.
    """

    name: str
    cpus: Mapping[str, float]
    period_us: int = PERIOD_US

    def by_hand(self, batch: int) -> list[int]:
        """Return the split that a person who knows the speeds would make."""
        return divided(batch, list(self.cpus.values()))

    def evenly(self, batch: int) -> list[int]:
        return divided(batch, [1.0] * len(self.cpus))


MIXES = (
    Mix("4:2:1", {"ada": 0.8, "bob": 0.4, "cem": 0.2}),
    Mix("1:1:1:0.25", {"ada": 0.4, "bob": 0.4, "cem": 0.4, "dan": 0.1}, 2 * PERIOD_US),
)


def divided(batch: int, weights: Sequence[float]) -> list[int]:
    """Return whole parts of ``batch`` in proportion to ``weights``; what is left goes to the first ones."""
    parts = [int(batch * weight / sum(weights) + 1e-9) for weight in weights]
    for index in range(batch - sum(parts)):
        parts[index % len(parts)] += 1
    return parts


@dataclass
class Field:
    """The contestants of one mix, loaded, standing still, on the same machines under the same quotas."""

    mix: Mix
    groups: Mapping[str, CpuGroup]
    chain: ChainTraining
    even: PlainTraining
    hand: PlainTraining
    solo: PlainTraining

    def compare(self, count: int, pace: Pace) -> dict[str, Any]:
        """Return what the rounds gave."""
        order: list[Contestant] = [self.solo, self.even, self.hand, self.chain]
        return compared(self.mix, rounds(order, count, pace)) | {"shares": self.chain.shares()}

    def halve(self, repeats: int, pace: Pace) -> dict[str, Any]:
        """Return the speed after the fastest machine's was halved in mid-run, over the solo speeds then."""
        name, cpus = max(self.mix.cpus.items(), key=lambda each: each[1])
        group = self.groups[name]
        found = []
        self.chain.resume()
        try:
            steady(self.chain, time.time())
            for _ in range(repeats):
                self._await_steps(time.time(), SETTLE_STEPS)
                halved_at = time.time()
                group.allow(cpus / 2)
                self._await_steps(halved_at, LAST)
                found.append(BATCH / median_step_s(self.chain.marks()[0], halved_at, FIRST, LAST))
                group.allow(cpus)
        finally:
            self.chain.pause()
        group.allow(cpus / 2)
        try:
            solo = [turn(self.solo, pace) for _ in range(max(2, repeats))]
        finally:
            group.allow(cpus)
        return halved(found, solo) | {"machine": name, "cpus": [cpus, cpus / 2]}

    def _await_steps(self, since: float, count: int) -> None:
        def came() -> bool:
            time.sleep(0.1)
            return sum(1 for mark in self.chain.marks()[0] if mark.at >= since) >= count

        until(came, HALVED_S, f"the chain does not make {count} steps")


def compared(mix: Mix, speeds: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return the figures of a mix from the samples/s of every round, in the order of the rounds."""
    ours = speeds[CHAIN]
    middle = {name: round(sorted(each)[len(each) // 2], 1) for name, each in speeds.items()}
    return {
        "cpus": dict(mix.cpus),
        "samples_per_s": middle,
        "rounds": {name: [round(value, 1) for value in each] for name, each in speeds.items()},
        "step_ms": round(1000 * BATCH / middle[CHAIN], 1),
        "efficiency": ratio(ours, speeds[SOLO]),
        "vs_even_split": ratio(ours, speeds[EVEN]),
        "vs_hand_tuned": ratio(ours, speeds[HAND]),
    }


def halved(found: Sequence[float], solo: Sequence[float]) -> dict[str, Any]:
    """Return the figures after a speed was halved: samples/s of each time, and of the solo loops then."""
    should_be = sorted(solo)[len(solo) // 2]
    kept = sorted(value / should_be for value in found)
    return {
        "kept": round(kept[len(kept) // 2], 3),
        "each": [round(value, 3) for value in kept],
        "samples_per_s": [round(value, 1) for value in found],
        "solo_samples_per_s": round(should_be, 1),
    }


@contextlib.contextmanager
def field(mix: Mix) -> Iterator[Field]:
    """Load the contestants of a mix: the plain ones with whole CPUs, the chain, which measures, without."""
    names = list(mix.cpus)
    code = models.convolutions(SAMPLES)
    with (
        lan(names) as net,
        cpu_groups(dict.fromkeys(names, 1.0), mix.period_us) as groups,
        tempfile.TemporaryDirectory(prefix="plain-") as folder,
        rig_chain() as chain,
        unbound_at_the_end(groups),
        contextlib.ExitStack() as stack,
    ):
        machines = [Machine(net.place(name), groups[name]) for name in names]
        job = models.write_job(Path(folder), code, BATCH)
        systems: tuple[PlainLoop | Ddp, ...] = (
            PlainLoop(BATCH),
            Ddp(EVEN, mix.evenly(BATCH), PORT),
            Ddp(HAND, mix.by_hand(BATCH), PORT + 1),
        )
        plain = []
        for number, system in enumerate(systems):
            training = PlainTraining(system, machines, Path(folder) / str(number), job, BATCH)
            stack.callback(training.close)
            training.start()
            plain.append(training)
        for name, cpus in mix.cpus.items():
            groups[name].allow(cpus)
        ours = ChainTraining(chain, machines, lambda jobs: models.write_job(jobs, code, BATCH))
        ours.start()
        ours.pause()
        solo, even, hand = plain
        yield Field(mix, groups, ours, even, hand, solo)
