"""How a chain grows: with its nodes, and with the parameters that every step has to pass around."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.hetero import models
from bench.hetero.chain import ChainTraining
from bench.hetero.plain import PlainLoop, PlainTraining
from bench.hetero.turns import Pace, turn, watch
from rig.chain import rig_chain
from rig.cpu import Machine, cpu_groups, unbound_at_the_end
from rig.lan import lan

NODES = tuple(f"n{number}" for number in range(1, 9))
NODE_CPUS, NODES_BATCH = 0.2, 256

FOUR, FOUR_CPUS, FOUR_BATCH = NODES[:4], 0.4, 256
INPUTS = 64
WIDTHS = {"10k": 72, "100k": 280, "1M": 962, "10M": 3121}
"""Of two hidden layers, by the parameters that they make."""


def with_nodes(sizes: Sequence[int], pace: Pace) -> dict[str, Any]:
    """Return the samples/s of chains of so many equal nodes, greatest first: one after the other leaves."""
    names, code = NODES[: max(sizes)], models.convolutions(8 * NODES_BATCH)
    found: dict[str, float] = {}
    with (
        lan(names) as net,
        cpu_groups(dict.fromkeys(names, NODE_CPUS)) as groups,
        rig_chain() as chain,
        unbound_at_the_end(groups),
    ):
        machines = [Machine(net.place(name), groups[name]) for name in names]
        ours = ChainTraining(chain, machines, lambda jobs: models.write_job(jobs, code, NODES_BATCH))
        ours.start()
        for size in sorted(sizes, reverse=True):
            while len(ours.nodes) > size:
                ours.leave()
            found[str(size)] = watch(ours, pace)
            print(f"{size} nodes: {found[str(size)]:.1f} samples/s", flush=True)
    return grown(found)


def grown(samples_per_s: Mapping[str, float]) -> dict[str, Any]:
    """Return the speed-up over one node and the efficiency of each size, the least first."""
    alone = samples_per_s["1"]
    return {
        size: {
            "samples_per_s": round(speed, 1),
            "speed_up": round(speed / alone, 2),
            "efficiency": round(speed / alone / int(size), 3),
        }
        for size, speed in sorted(samples_per_s.items(), key=lambda each: int(each[0]))
    }


def with_parameters(counts: Sequence[str], pace: Pace) -> dict[str, Any]:
    """Return what four nodes make of models of so many parameters, against the sum of the solo speeds."""
    codes = {count: models.perceptron(8 * FOUR_BATCH, INPUTS, WIDTHS[count]) for count in counts}
    found = {}
    with lan(FOUR) as net, cpu_groups(dict.fromkeys(FOUR, FOUR_CPUS)) as groups:
        machines = [Machine(net.place(name), groups[name]) for name in FOUR]
        for count, code in codes.items():
            with tempfile.TemporaryDirectory(prefix="plain-") as folder, contextlib.ExitStack() as stack:
                job = models.write_job(Path(folder), code, FOUR_BATCH)
                solo = PlainTraining(PlainLoop(FOUR_BATCH), machines, Path(folder) / "solo", job, FOUR_BATCH)
                stack.callback(solo.close)
                for group in groups.values():
                    group.allow(1.0)
                solo.start()
                for group in groups.values():
                    group.allow(FOUR_CPUS)
                chain = stack.enter_context(rig_chain())
                stack.enter_context(unbound_at_the_end(groups))
                ours = ChainTraining(chain, machines, partial(models.write_job, code=code, batch=FOUR_BATCH))
                ours.start()
                joint = turn(ours, pace)
                alone = turn(solo, pace)
            found[count] = paid(models.parameters(INPUTS, WIDTHS[count]), joint, alone)
            print(f"{count} parameters: {found[count]}", flush=True)
    return found


def paid(parameters: int, joint: float, alone: float) -> dict[str, Any]:
    """Return the figures of a model: samples/s of four nodes together, and the sum of each by itself."""
    return {
        "parameters": parameters,
        "samples_per_s": round(joint, 1),
        "sum_of_solo": round(alone, 1),
        "efficiency": round(joint / alone, 3),
        "step_ms": round(1000 * FOUR_BATCH / joint, 1),
    }
