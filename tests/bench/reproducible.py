"""What reproducible mode costs: samples/s of the default mode over those of `reproducible: true`.

    PYTHONPATH=tests python -m bench.reproducible [--json]

Real trainers, one thread each, in worlds of one and of two (gloo on loopback). For each model both modes are
loaded at the same time and take turns: a world forms, trains for some seconds, and is left. A round gives one
ratio of neighbours in time, so a machine that slows down meanwhile changes little; medians are told.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import report
from daisychain.core.orders import LeaveWorld
from daisychain.core.reports import Progress, TrainerReady, WorldBroken
from support.hand_world import HandTrainer, HandWorld, hand_world
from support.job_folders import write_job

BATCH = 128
READY_S = 120.0
PAUSE_S = 0.5
"""From the first step of a world to the first that counts."""

HEAD = """
import torch
from torch import nn


def loss(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=1e-4)


def data(split, *shape):
    if split != "train":
        return None
    generator = torch.Generator().manual_seed(1)
    return torch.randn(4096, *shape, generator=generator), torch.randint(0, 10, (4096,), generator=generator)
"""

MLP = """

def model():
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))


def dataset(split):
    return data(split, 64)
"""

CNN = """

def model():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.Dropout(0.25),
        nn.Flatten(), nn.Linear(1568, 10),
    )


def dataset(split):
    return data(split, 1, 14, 14)
"""

WIDE = """

def model():
    return nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 768), nn.ReLU(), nn.Linear(768, 10))


def dataset(split):
    return data(split, 256)
"""

MODELS = {
    "MLP, 17 thousand parameters": MLP,
    "CNN with batch norm and dropout, 21 thousand parameters": CNN,
    "MLP, 1.1 million parameters": WIDE,
}


@dataclass
class Mode:
    """One mode of one model: two trainers, ready."""

    world: HandWorld
    trainers: list[HandTrainer]

    def samples_per_s(self, size: int, window_s: float) -> float:
        """Train in a world of ``size`` for a while, leave it, and return the speed."""
        members = self.trainers[:size]
        generation = self.world.form(members)
        rank0 = members[0]
        self.world.progress(rank0, generation)
        time.sleep(PAUSE_S)
        began_at = time.monotonic()
        time.sleep(window_s)
        seen = rank0.found(Progress, lambda each: each.generation == generation)
        inside = [(at, told.step) for at, told in seen if at >= began_at]
        for member in members:
            member.tell(LeaveWorld(generation, "enough was seen"))
        for member in members:
            member.wait(WorldBroken, lambda each: each.generation == generation)
        (first_at, first), (last_at, last) = inside[0], inside[-1]
        return (last - first) * BATCH / (last_at - first_at)


def compare(code: str, sizes: Sequence[int], rounds: int, window_s: float) -> dict[str, Any]:
    """Return for each world size the medians of both modes and of their ratio."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        keys: dict[str, object] = {"global_batch_size": BATCH, "steps": 10_000_000, "threads": 1}
        default = write_job(folder / "default" / "job", HEAD + code, **keys)
        exact = write_job(folder / "exact" / "job", HEAD + code, reproducible=True, **keys)
        with hand_world(default, folder / "d") as plain, hand_world(exact, folder / "e") as bits:
            modes = [Mode(world, [world.begin() for _ in range(max(sizes))]) for world in (plain, bits)]
            for mode in modes:
                for trainer in mode.trainers:
                    parameters = trainer.wait(TrainerReady, timeout_s=READY_S)[1].parameters
            found: dict[str, Any] = {"parameters": parameters, "processes": {}}
            for size in sizes:
                pairs = [[mode.samples_per_s(size, window_s) for mode in modes] for _ in range(rounds)]
                found["processes"][str(size)] = summed_up(pairs)
    return found


def summed_up(pairs: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return the medians of samples/s (default, reproducible) of every round, and of their ratio."""
    return {
        "default_samples_per_s": round(statistics.median(pair[0] for pair in pairs), 1),
        "reproducible_samples_per_s": round(statistics.median(pair[1] for pair in pairs), 1),
        "price": round(statistics.median(pair[0] / pair[1] for pair in pairs), 3),
        "prices": sorted(round(pair[0] / pair[1], 3) for pair in pairs),
    }


def print_table(models: Mapping[str, Any]) -> None:
    """Print the speeds and the price of each model."""
    rows = []
    for name, found in models.items():
        row = [name]
        for told in found["processes"].values():
            speeds = (told["default_samples_per_s"], told["reproducible_samples_per_s"])
            row += [" / ".join(f"{speed:,.0f}" for speed in speeds), f"{told['price']:.2f}"]
        rows.append(row)
    title = f"Reproducible mode, batches of {BATCH}: samples/s by default / reproducible, and their ratio"
    report.show(title, ["model", "1 process", "price", "2 processes", "price"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="What reproducible mode costs.")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON instead of a table")
    given = parser.parse_args()
    rounds, window_s = (5, 0.8) if report.quick() else (9, 3.0)
    models = {name: compare(code, (1, 2), rounds, window_s) for name, code in MODELS.items()}
    result = {
        "machine": report.machine(),
        "global_batch_size": BATCH,
        "granule": 32,
        "rounds": rounds,
        "window_s": window_s,
        "models": models,
    }
    report.publish("reproducible", result, keep=not report.quick())
    if given.json:
        print(json.dumps(result, indent=2))
    else:
        print_table(models)


if __name__ == "__main__":
    main()
