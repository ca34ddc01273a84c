"""The storm's job: a node is a fixed amount of compute, and the model counts its own visits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

JOB = "storm"
SAMPLES, BATCH, GRANULE, SEED = 480, 48, 4, 7
STEPS_AN_EPOCH = SAMPLES // BATCH
GRANULE_S = 0.05
"""What a granule takes on any node, whatever the machine below does besides: it is slept."""

CODE = '''
"""One parameter a sample counts its visits; a small network beside it makes the bits worth comparing."""

import time
from pathlib import Path

import torch
from torch import nn

PACE = Path({pace!r})


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.counts = nn.Parameter(torch.zeros({samples}))
        self.net = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 1))


def model():
    return Counting()


def dataset(split):
    return torch.arange({samples}) if split == "train" else None


def loss(model, samples):
    if PACE.exists():
        time.sleep({granule_s})
    inputs = torch.sin(samples.to(torch.float64)[:, None] * torch.arange(1.0, 9.0, dtype=torch.float64))
    squares = (model.net(inputs) - inputs.sum(dim=1, keepdim=True)) ** 2
    return squares.mean() - model.counts[samples].mean()


def optimizer(parameters):
    counts, *net = parameters
    return torch.optim.SGD([{{"params": [counts], "lr": {batch}.0}}, {{"params": net, "lr": 1e-3}}])
'''


def write_job(jobs: Path, pace: Path, epochs: int) -> Path:
    """Write the job into a jobs folder; as long as ``pace`` exists every granule takes its time."""
    folder = jobs / JOB
    folder.mkdir(parents=True)
    code = CODE.format(pace=str(pace), samples=SAMPLES, granule_s=GRANULE_S, batch=BATCH)
    (folder / "storm.py").write_text(code)
    (folder / "job.yaml").write_text(
        f"kind: python\nfile: storm.py\nglobal_batch_size: {BATCH}\nepochs: {epochs}\nseed: {SEED}\n"
        f"dtype: float64\nreproducible: true\ngranule: {GRANULE}\n"
    )
    return folder


def lost_and_repeated(model: Path, epochs: int) -> tuple[int, int]:
    """Return how many visits the model lacks, and has too many, by its own counts."""
    counts = np.rint(load_file(model)["counts"])
    return int(np.maximum(0, epochs - counts).sum()), int(np.maximum(0, counts - epochs).sum())
