"""`make bench-hetero`: machines of unequal speed, one machine alone, growth, and what an idle agent costs.

On one machine with a network namespace and a CPU quota for each node. Whatever is compared is loaded at the
same time and takes turns on the same quotas, the others standing still; medians over the rounds of a round's
ratio are told. Writes `build/bench/hetero.json`.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench import report
from bench.hetero import growth, idle, mixes, one_node, to_loss
from bench.hetero.result import Found, print_table, result
from bench.hetero.turns import Pace
from rig.requirements import RigUnavailable


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Attributes:
        rounds: of every comparison.
        pace, one_pace, growth_pace: of turns by machines of unequal speed; by one node; while a chain grows.
        halvings: times that a speed is halved.
        nodes, parameters: sizes of chains, and models.
        goals: jobs that are trained to a held-out loss.
        idle_s: seconds for which agents are watched.
    """

    rounds: int
    pace: Pace
    one_pace: Pace
    growth_pace: Pace
    halvings: int
    nodes: tuple[int, ...]
    parameters: tuple[str, ...]
    goals: tuple[to_loss.Goal, ...]
    idle_s: float


FULL = Size(
    rounds=5,
    pace=Pace(2.0, 6.0),
    one_pace=Pace(1.0, 3.0),
    growth_pace=Pace(1.0, 4.0),
    halvings=3,
    nodes=tuple(range(1, 9)),
    parameters=tuple(growth.WIDTHS),
    goals=to_loss.GOALS,
    idle_s=20.0,
)
QUICK = Size(
    rounds=1,
    pace=Pace(1.0, 3.0),
    one_pace=Pace(0.5, 1.5),
    growth_pace=Pace(0.5, 3.0),
    halvings=1,
    nodes=(1, 2),
    parameters=("10k",),
    goals=to_loss.GOALS[:1],
    idle_s=5.0,
)

PARTS = ("mixes", "one", "growth", "idle", "loss")


def main() -> int:
    """Measure what was asked for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, help="one part alone, printed as JSON; nothing is written")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON instead of tables")
    given = parser.parse_args()
    size = QUICK if report.quick() else FULL
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing is left behind
    try:
        if given.only:
            print(json.dumps(part(given.only, size), indent=2))
            return 0
        told = result(Found(**{name: part(name, size) for name in PARTS}))
    except RigUnavailable as error:
        sys.stderr.write(f"bench-hetero cannot run here: {error}\n")
        return 2
    report.publish("hetero", told, keep=not report.quick())
    if given.json:
        print(json.dumps(told, indent=2))
    else:
        print_table(told)
    return 0


def part(name: str, size: Size) -> dict[str, Any]:
    """Return the figures of one part."""
    parts: dict[str, Callable[[Size], dict[str, Any]]] = {
        "mixes": of_mixes,
        "one": lambda size: {
            model.name: one_node.compare(model, size.rounds, size.one_pace) for model in one_node.MODELS
        },
        "growth": lambda size: {
            "nodes": growth.with_nodes(size.nodes, size.growth_pace),
            "parameters": growth.with_parameters(size.parameters, size.growth_pace),
        },
        "idle": lambda size: idle.measure(size.idle_s),
        "loss": lambda size: to_loss.measure(size.goals),
    }
    print(f"--- {name}", flush=True)
    began = time.monotonic()
    found = parts[name](size)
    print(f"--- {name}: {time.monotonic() - began:.0f} s", flush=True)
    return found


def of_mixes(size: Size) -> dict[str, Any]:
    """Return the figures of every mix of speeds; a speed is halved in the first one."""
    found = {}
    for mix in mixes.MIXES:
        with mixes.field(mix) as field:
            found[mix.name] = field.compare(size.rounds, size.pace)
            if mix is mixes.MIXES[0]:
                found[mix.name]["after_halving"] = field.halve(size.halvings, size.pace)
    return found


if __name__ == "__main__":
    sys.exit(main())
