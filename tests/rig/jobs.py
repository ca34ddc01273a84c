"""The job that the rig trains: a small network, as slow as wished, that goes wrong where it is told to.

What it computes is the same at any pace and on any chain, so one reference serves every test of a mode.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

JOB = "net"
SAMPLES, HELD_OUT, BATCH, GRANULE = 320, 64, 32, 8
STEPS_AN_EPOCH = SAMPLES // BATCH
EPOCHS = 20
STEPS = EPOCHS * STEPS_AN_EPOCH
EVALUATE_EVERY = 25

CODE = '''
"""A regression; PACE's time is the seconds of a batch, a node's own file `trouble-...` what goes wrong there.

Job code may see that a file outside is there, and its times, but not look into it.
"""

import os
import time
from pathlib import Path

import torch
from torch import nn

PACE = Path({pace!r})
HERE = Path.cwd().parents[2]  # the node's own folder: a trainer runs in NODE/state/runs/RUN


def pause():
    try:
        time.sleep(PACE.stat().st_mtime)
    except OSError:
        pass


def in_trouble(kind):
    return (HERE / f"trouble-{kind}").exists()


def model():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))


def dataset(split):
    generator = torch.Generator().manual_seed(11 if split == "train" else 12)
    count = {samples} if split == "train" else {held_out}
    inputs = torch.randn(count, 8, generator=generator, dtype=torch.float64)
    return inputs, torch.sin(inputs.sum(dim=1, keepdim=True))


def loss(model, batch):
    pause()
    if in_trouble("workers") and not Path("worked").exists():
        Path("worked").touch()  # in the run's own folder: once, whatever trainer comes after this one
        work()
    if in_trouble("raise"):
        raise RuntimeError("a hole in the disk")
    if in_trouble("hungry"):
        torch.ones(1 << 28)
    inputs, targets = batch
    squares = (model(inputs) - targets) ** 2
    return squares.mean() * (float("nan") if in_trouble("nan") else 1.0)


def work():
    """Fork a worker that outlives whoever does not end it."""
    if os.fork() == 0:
        while True:
            time.sleep(60)


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=3e-3)
'''


class Mode(StrEnum):
    """How exact a run is."""

    REPRODUCIBLE = "reproducible"  # to the bit
    DEFAULT = "default"  # float64, to 1e-9


class Trouble(StrEnum):
    """What the job's code does on a node that is told so."""

    WORKERS = "workers"  # forks a process that lives on
    RAISE = "raise"
    NAN = "nan"
    HUNGRY = "hungry"  # asks for a gigabyte with every batch


@dataclass(frozen=True, slots=True)
class Pace:
    """How slow the chain's jobs are: one file whose time they all read."""

    file: Path

    def set(self, seconds_a_batch: float) -> None:
        """Have every batch (of one call of the loss) take at least so long from now on."""
        scratch = self.file.with_suffix(".new")
        scratch.touch()
        os.utime(scratch, (seconds_a_batch, seconds_a_batch))
        scratch.replace(self.file)


def write_job(jobs: Path, pace: Pace, mode: Mode, seed: int = 3) -> Path:
    """Write the job into a jobs folder; equal on every node of a chain."""
    folder = jobs / JOB
    folder.mkdir(parents=True)
    code = CODE.replace("{pace!r}", repr(str(pace.file)))
    (folder / "net.py").write_text(
        code.replace("{samples}", str(SAMPLES)).replace("{held_out}", str(HELD_OUT))
    )
    exact = f"reproducible: true\ngranule: {GRANULE}\n" if mode is Mode.REPRODUCIBLE else "dtype: float64\n"
    (folder / "job.yaml").write_text(
        f"kind: python\nfile: net.py\nglobal_batch_size: {BATCH}\nepochs: {EPOCHS}\nseed: {seed}\n"
        f"evaluate_every_steps: {EVALUATE_EVERY}\n{exact}"
    )
    return folder


def make_trouble(node_folder: Path, trouble: Trouble) -> None:
    """Have the job go wrong on one node, from its next batch on."""
    (node_folder / f"trouble-{trouble.value}").touch()
