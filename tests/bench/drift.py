"""How far replicas that round differently drift apart: two processes, one without fused and wide arithmetic.

    PYTHONPATH=tests python -m bench.drift [--json]

Each case trains for some thousand steps; both replicas apply the same reduced gradients, as in a world. What
is told is what the tolerance is held against (`trainer.state.tolerance`): the largest relative difference of
any tensor's sketch, of the model and of the optimizer.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from bench import report
from daisychain.core.ids import RunId
from daisychain.trainer.state.sketch import WIDTH
from daisychain.trainer.state.training_state import TrainingState
from support.engine_jobs import CLASSES, FEATURES, Optimizer, Recipe
from support.plans import generation

STEPS = (250, 500, 1000, 2000, 4000)
QUICK_STEPS = (100, 200, 400)
OTHER = {"ATEN_CPU_CAPABILITY": "default"}
"""What makes the second replica round like a machine of another make."""

LIMIT_S = 600.0


class Cnn(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Unflatten(1, (1, 2, 4)),
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Flatten(),
            nn.Linear(128, CLASSES),
        )


class Mlp(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Linear(FEATURES, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, CLASSES)
        )


OPTIMIZERS: dict[str, Optimizer] = {
    "adam": lambda model: torch.optim.Adam(model.parameters(), 1e-3),
    "adamw": lambda model: torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.05),
    "sgd": lambda model: torch.optim.SGD(model.parameters(), 0.05, momentum=0.9),
    "rmsprop": lambda model: torch.optim.RMSprop(model.parameters(), 1e-3, momentum=0.9),
}
MODELS: dict[str, Callable[[], nn.Module]] = {"mlp": Mlp, "cnn": Cnn}
CASES = [
    ("mlp", "adam", "float32"),
    ("mlp", "sgd", "float32"),
    ("cnn", "adam", "float32"),
    ("cnn", "adamw", "float32"),
    ("cnn", "sgd", "float32"),
    ("cnn", "rmsprop", "float32"),
    ("mlp", "adam", "float64"),
    ("cnn", "sgd", "float64"),
]


@dataclass
class _Sum:
    work: Any

    def wait(self) -> None:
        self.work.wait()


@dataclass
class Pair:
    """The world of both replicas."""

    rank: int
    size: int = 2
    pending: list[Any] = field(default_factory=list)

    def sum(self, tensor: torch.Tensor) -> _Sum:
        return _Sum(dist.all_reduce(tensor, async_op=True))

    def max(self, tensor: torch.Tensor) -> _Sum:
        return _Sum(dist.all_reduce(tensor, dist.ReduceOp.MAX, async_op=True))


def replica(case: Sequence[str], rank: int, meeting: Path, steps: Sequence[int]) -> None:
    """Train as one of two; rank 0 prints the differences after each of ``steps`` as a JSON line."""
    model, optimizer, dtype = case
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    recipe = Recipe(
        MODELS[model],
        OPTIMIZERS[optimizer],
        samples=2048,
        batch=32,
        granule=16,
        granules=model == "cnn",
        dtype=getattr(torch, dtype),
        steps=max(steps),
        clip=1.0,
        validation=0,
    )
    engine, pair = recipe.engine(), Pair(rank)
    state = TrainingState(RunId("0" * 16 + "-1"), engine)
    share(state, rank)
    for step in range(max(steps)):
        position = engine.timeline.position(step)
        units = engine.units(position)
        state.commit_step(engine.reduce_step(pair, position, (units - units // 2, units // 2)), generation())
        if step + 1 in steps:
            own = torch.tensor(state.sketch(), dtype=torch.float64)
            both = [torch.empty_like(own), torch.empty_like(own)]
            dist.all_gather(both, own)
            apart = differences(*both)
            tensors = len(engine.job.model.state_dict())
            if rank == 0:
                found = {"step": step + 1, "model": max(apart[:tensors]), "optimizer": max(apart[tensors:])}
                print(json.dumps(found), flush=True)
    dist.destroy_process_group()


def share(state: TrainingState, rank: int) -> None:
    """Have both begin with rank 0's state: first weights are rounded, too."""
    packed = state.pack()
    dist.broadcast(packed.payload, 0)
    if rank != 0:
        state.unpack(packed.header, packed.payload)


def differences(one: torch.Tensor, other: torch.Tensor) -> list[float]:
    """Return for each tensor how far its sketches are apart, relative to its norm."""
    one, other = one.view(-1, WIDTH), other.view(-1, WIDTH)
    norms = torch.maximum(one[:, 0], other[:, 0]).clamp_min(1e-300)
    found: list[float] = ((one - other).abs().amax(dim=1) / norms).tolist()
    return found


def measure(case: Sequence[str], steps: Sequence[int]) -> list[dict[str, float]]:
    """Train one case in two processes of their own and return rank 0's lines."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.drift", "--steps", ",".join(map(str, steps))]
        command += ["--meeting", f"{folder}/meeting", "--case", ",".join(case), "--rank"]
        base = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        pair = [
            subprocess.Popen([*command, str(rank)], env={**base, **more}, stdout=subprocess.PIPE, text=True)
            for rank, more in enumerate(({}, OTHER))
        ]
        try:
            lines, _ = pair[0].communicate(timeout=LIMIT_S)
            pair[1].communicate(timeout=LIMIT_S)
        finally:
            for process in pair:
                process.kill()
                process.wait()
        if any(process.returncode for process in pair):
            raise RuntimeError(f"{case}: a replica ended with {[each.returncode for each in pair]}")
        return [json.loads(line) for line in lines.splitlines() if line.startswith("{")]


def print_table(cases: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    """Print how far the replicas of each case were apart, model / optimizer."""
    steps = [str(line["step"]) for line in next(iter(cases.values()))]
    rows = []
    for name, lines in cases.items():
        rows.append([name, *(f"{line['model']:.1e} / {line['optimizer']:.1e}" for line in lines)])
    title = "Replicas that round differently, apart after so many steps: model / optimizer"
    report.show(title, ["case", *steps], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON instead of a table")
    for hidden in ("--case", "--meeting", "--steps", "--rank"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        steps = [int(step) for step in given.steps.split(",")]
        replica(given.case.split(","), int(given.rank), Path(given.meeting), steps)
        return
    marks = QUICK_STEPS if report.quick() else STEPS
    cases = {" ".join(case): measure(case, marks) for case in CASES}
    result = {"machine": report.machine(), "other": OTHER, "cases": cases}
    report.publish("drift", result, keep=not report.quick())
    if given.json:
        print(json.dumps(result, indent=2))
    else:
        print_table(cases)


if __name__ == "__main__":
    main()
