"""Time to a fixed held-out loss: three machines of unequal speed against the fastest of them alone.

The steps are the same on any chain, so the times differ as the steps do: a small table gains nothing, and the
figures say so.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.hetero.journals import JournalTail, Line
from bench.hetero.mixes import MIXES
from bench.report import ROOT
from daisychain.errors import AgentError
from rig.chain import RigChain, rig_chain
from rig.cpu import Machine, cpu_groups, unbound_at_the_end
from rig.lan import lan
from support.waiting import until

MIX = MIXES[0]
REACHED_S = 240.0
POLL_S = 0.1

ROWS, COLUMNS = 60_000, 24
TABLE = """kind: table
data: table.npz
target: y
task: regression
hidden: [512, 256]
global_batch_size: 4096
epochs: 1000
evaluate_every_steps: 10
seed: 1
threads: 1
"""


def write_digits(jobs: Path) -> None:
    """Put the digits of the repository into a jobs folder, evaluated after every epoch."""
    folder = jobs / "digits"
    shutil.copytree(ROOT / "jobs" / "digits", folder, ignore=shutil.ignore_patterns("result"))
    text = (folder / "job.yaml").read_text()
    (folder / "job.yaml").write_text(text.replace("evaluate_every_epochs: 10", "evaluate_every_epochs: 1"))


def write_table(jobs: Path) -> None:
    """Put a synthetic regression into a jobs folder: a smooth function of some columns, and noise."""
    folder = jobs / "table"
    folder.mkdir()
    drawn = np.random.default_rng(7)
    x = drawn.standard_normal((ROWS, COLUMNS))
    noise = 0.1 * drawn.standard_normal(ROWS)
    y = np.sin(x[:, 0] + x[:, 1]) + x[:, 2] * x[:, 3] + 0.5 * np.abs(x[:, 4]) + noise
    np.savez(folder / "table.npz", x=x.astype(np.float32), y=y.astype(np.float32))
    (folder / "job.yaml").write_text(TABLE)


@dataclass(frozen=True)
class Goal:
    """A job of a table, and the held-out loss that is to be reached."""

    job: str
    loss: float
    write: Callable[[Path], None]


GOALS = (Goal("digits", 0.2, write_digits), Goal("table", 0.1, write_table))


def measure(goals: Sequence[Goal] = GOALS) -> dict[str, Any]:
    """Return for each goal the seconds to it, of the chain and of its fastest machine alone."""
    fastest = max(MIX.cpus, key=lambda name: MIX.cpus[name])
    chained, alone = _times(list(MIX.cpus), goals), _times([fastest], goals)
    return {
        goal.job: {
            "held_out_loss": goal.loss,
            "chain_s": chained[goal.job],
            "best_alone_s": alone[goal.job],
            "speed_up": round(alone[goal.job] / chained[goal.job], 2),
        }
        for goal in goals
    }


def seconds_to(lines: Sequence[Line], since: float, loss: float) -> float | None:
    """Return the seconds from the begin of a run's first step to an evaluation of ``loss`` or less.

    ``since``: Unix seconds when the run was asked for: lines before it are another run's. None = not yet.
    """
    ours = [line for line in lines if line["at"] >= since]
    first = next((line for line in ours if "samples" in line), None)
    told = (line for line in ours if "evaluation" in line and line["evaluation"]["loss"] is not None)
    reached = next((line for line in told if line["evaluation"]["loss"] <= loss), None)
    if first is None or reached is None:
        return None
    return float(reached["at"] - (first["at"] - first["step_s"]))


def _times(names: Sequence[str], goals: Sequence[Goal]) -> dict[str, float]:
    cpus = {name: MIX.cpus[name] for name in names}
    found = {}
    with (
        lan(names) as net,
        cpu_groups(cpus, MIX.period_us) as groups,
        rig_chain() as chain,
        unbound_at_the_end(groups),
    ):
        machines = [Machine(net.place(name), groups[name]) for name in names]
        nodes = [chain.start(machine, "--min-nodes", str(len(names))) for machine in machines]
        tail = JournalTail(nodes[0].state)
        for goal in goals:
            found[goal.job] = round(_time(chain, names, tail, goal), 2)
            print(f"{goal.job} on {len(names)}: {found[goal.job]} s to {goal.loss}", flush=True)
            with contextlib.suppress(AgentError):  # it may have come to its end
                nodes[0].client.cancel(goal.job)
    return found


def _time(chain: RigChain, names: Sequence[str], tail: JournalTail, goal: Goal) -> float:
    """Drop the goal's job on every node; return the seconds to its loss."""
    since = time.time()
    for name in names:
        goal.write(chain.prepare(name))
    found: list[float] = []

    def reached() -> bool:
        time.sleep(POLL_S)
        tail.read()
        took_s = seconds_to(tail.lines, since, goal.loss)
        if took_s is not None:
            found.append(took_s)
        return bool(found)

    until(reached, REACHED_S, f"{goal.job} does not come to a held-out loss of {goal.loss}")
    return found[0]
