"""A small convolutional network with batch norm and dropout over 8 x 8 images of digits."""

import gzip
from pathlib import Path

import numpy as np
import torch
from torch import nn

DATA = Path(__file__).parent / "digits.csv.gz"
HELD_OUT_EVERY = 5


def model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 12, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 24, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(24 * 2 * 2, 10),
    )


def dataset(split: str) -> tuple[torch.Tensor, torch.Tensor]:
    with gzip.open(DATA, "rt") as lines:
        rows = np.loadtxt(lines, delimiter=",", skiprows=1, dtype=np.float32)
    held_out = np.arange(len(rows)) % HELD_OUT_EVERY == 0
    rows = rows[held_out if split == "validation" else ~held_out]
    images = torch.from_numpy(rows[:, :-1] / 16).reshape(-1, 1, 8, 8)
    return images, torch.from_numpy(rows[:, -1]).long()


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    images, digits = batch
    return nn.functional.cross_entropy(model(images), digits)


def optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=3e-3)


def metrics(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, tuple[float, float]]:
    images, digits = batch
    right = (model(images).argmax(dim=1) == digits).sum()
    return {"accuracy": (float(right), len(digits))}
