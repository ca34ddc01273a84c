"""The jobs of the benchmark: models of chosen cost, with random data and nothing held out.

DaisyChain and the plain loops train one and the same file.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

NAME = "speed"
FOREVER = 1_000_000_000

HEAD = '''
"""Written by the benchmark."""

import torch
from torch import nn


def dataset(split):
    if split != "train":
        return None
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn({samples}, {shape}, generator=generator)
    return inputs, torch.randint(0, 10, ({samples},), generator=generator)


def loss(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=1e-4)


def model():
    return nn.Sequential({layers})
'''

SIDE = 16
CONVOLUTIONS = (
    "nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), "
    "nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 10)"
)
"""19 thousand parameters and some 0.3 ms a sample: much computing for few bytes."""

GRANULES = (
    "nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), "
    "nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.Dropout(0.25), "
    "nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 10)"
)
"""Batch norm and dropout: computed in granules."""

IMAGES = f"1, {SIDE}, {SIDE}"


def convolutions(samples: int) -> str:
    """Return the code of the job whose steps take long."""
    return HEAD.format(samples=samples, shape=IMAGES, layers=CONVOLUTIONS)


def granules(samples: int) -> str:
    """Return the code of a job with batch norm and dropout."""
    return HEAD.format(samples=samples, shape=IMAGES, layers=GRANULES)


def perceptron(samples: int, inputs: int, width: int, depth: int = 2) -> str:
    """Return the code of a job of fully connected layers; see `parameters`."""
    widths = [inputs, *[width] * depth]
    hidden = [f"nn.Linear({a}, {b}), nn.ReLU(), " for a, b in pairwise(widths)]
    layers = "".join(hidden) + f"nn.Linear({width}, 10)"
    return HEAD.format(samples=samples, shape=inputs, layers=layers)


def parameters(inputs: int, width: int, depth: int = 2) -> int:
    """Return the number of trained numbers of a `perceptron`."""
    return (inputs + 1) * width + (depth - 1) * (width + 1) * width + (width + 1) * 10


def write_job(jobs: Path, code: str, batch: int, name: str = NAME, priority: int = 0) -> Path:
    """Write a job of endless training into a jobs folder; return its Python file."""
    folder = jobs / name
    folder.mkdir(parents=True)
    (folder / "job.yaml").write_text(
        f"kind: python\nfile: model.py\nglobal_batch_size: {batch}\nsteps: {FOREVER}\nthreads: 1\n"
        f"seed: 1\npriority: {priority}\n"
    )
    (folder / "model.py").write_text(code)
    return folder / "model.py"
