"""Small jobs that tests train, written into a folder of the test's own."""

from __future__ import annotations

from pathlib import Path

COUNTING = '''
"""One float64 parameter a sample; each visit adds exactly 1 to it (the batch sizes are powers of two)."""

import torch
from torch import nn

SAMPLES, BATCH = 64, 16


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.counts = nn.Parameter(torch.zeros(SAMPLES))


def model():
    return Counts()


def dataset(split):
    return torch.arange(SAMPLES) if split == "train" else None


def loss(model, samples):
    return -model.counts[samples].mean()


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=float(BATCH))
'''

REGRESSION = '''
"""A float64 regression with all that can go wrong in a sum over nodes, switched by FEATURES."""

import torch
from torch import nn

FEATURES = frozenset({features!r})
SAMPLES = 200


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)
        self.last = nn.Linear(6, 1)
        if "tied" in FEATURES:
            self.second.weight = self.first.weight
        if "unused" in FEATURES:
            self.unused = nn.Parameter(torch.ones(5))
        generator = torch.Generator().manual_seed(7)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))

    def forward(self, inputs):
        return self.last(torch.tanh(self.second(torch.tanh(self.first(inputs))))).squeeze(-1)


def model():
    return Net()


def dataset(split):
    generator = torch.Generator().manual_seed(11 if split == "train" else 12)
    inputs = torch.randn(SAMPLES, 6, generator=generator, dtype=torch.float64)
    noise = torch.randn(SAMPLES, generator=generator, dtype=torch.float64)
    targets = torch.sin(inputs.sum(dim=1)) + 0.1 * noise
    weights = 0.1 + 5 * torch.rand(SAMPLES, generator=generator, dtype=torch.float64) ** 3
    return inputs, targets, weights


def loss(model, batch):
    inputs, targets, weights = batch
    squares = (model(inputs) - targets) ** 2
    if "weighted" in FEATURES:
        return (weights * squares).sum(), weights.sum()
    return squares.mean()


def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=3e-3, weight_decay=0.1)


if "schedule" in FEATURES:

    def schedule(optimizer):
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.995**step)


if "plateau" in FEATURES:

    def schedule(optimizer):
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.3)
'''

WHOLE = '''
"""Everything that a state may hold: batch norm, dropout, Adam, a schedule that follows the held-out loss."""

import time

import torch
from torch import nn

SAMPLES = 320
PACE_S = {pace_s!r}  # each granule takes at least so long: a run that is to be struck is not over before


def model():
    return nn.Sequential(
        nn.Linear(8, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.3), nn.Linear(24, 1)
    )


def dataset(split):
    generator = torch.Generator().manual_seed(21 if split == "train" else 22)
    inputs = torch.randn(SAMPLES, 8, generator=generator)
    return inputs, torch.sin(inputs.sum(dim=1, keepdim=True))


def loss(model, batch):
    time.sleep(PACE_S)
    return ((model(batch[0]) - batch[1]) ** 2).mean()


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=1e-2)


def schedule(optimizer):
    return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
'''

FAILING = """
import torch
from torch import nn


def model():
    return nn.Linear(3, 1)


def dataset(split):
    return (torch.ones(64, 3), torch.ones(64, 1)) if split == "train" else None


def loss(model, batch):
    inputs, targets = batch
    if model.weight.sum() > 1.0:
        {failure}
    return ((model(inputs) - 3 * targets) ** 2).mean()


def optimizer(parameters):
    with torch.no_grad():
        for parameter in parameters:
            parameter.zero_()
    return torch.optim.SGD(parameters, lr=1e-3)
"""

FORKING = (
    COUNTING
    + """
_loss, _forked = loss, False


def loss(model, samples):
    global _forked
    if not _forked and model.counts.sum() > 10 * SAMPLES:  # so a world trains
        _forked = True
        _fork()
    return _loss(model, samples)


def _fork():
    import os, pathlib, time

    here = pathlib.Path.cwd()  # the run's folder: each node has its own
    child = os.fork()
    if child == 0:
        while not (here / "end").exists():
            time.sleep(0.02)
        os._exit(0)
    (here / "child").write_text(str(child))
"""
)


NOISY = '''
"""A small convolution net with batch norm and dropout, and random augmentation, trained by Adam.

A node whose run folder has a file ``plant`` (lines of: step, part of the state) spoils that part by a
thousandth right after that step.
"""

from pathlib import Path

import torch
from torch import nn

SAMPLES = 160
PLANT = Path.cwd() / "plant"
NET = None


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
            nn.Dropout(0.2), nn.Flatten(), nn.Linear(54, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 4),
        )


def model():
    global NET
    NET = Net()
    return NET


class Augmented:
    def __init__(self, seed):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, 4, (SAMPLES,), generator=generator)
        self.images = torch.randn(SAMPLES, 1, 6, 6, generator=generator)
        self.images[:, 0, 0, :4] += 2 * nn.functional.one_hot(self.labels, 4)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return self.images[index] + 0.1 * torch.randn(1, 6, 6), self.labels[index]


def dataset(split):
    return Augmented(1 if split == "train" else 2)


def loss(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


class Planting(torch.optim.Adam):
    @torch.no_grad()
    def step(self, closure=None):
        super().step()
        if not PLANT.exists():
            return
        weight = NET[6].weight
        state = self.state[weight]
        for line in PLANT.read_text().splitlines():
            step, part = line.split()
            if int(step) == int(state["step"]):
                spoilt = {"parameter": weight, "moment": state["exp_avg_sq"], "buffer": NET[1].running_var}
                spoilt[part].mul_(1 + 1e-3)


def optimizer(parameters):
    return Planting(parameters, lr=2e-3)
'''


def write_job(folder: Path, code: str, **keys: object) -> Path:
    """Write a python job into ``folder`` (its name is the job's); ``keys`` are job.yaml's own."""
    folder.mkdir(parents=True)
    (folder / "job.py").write_text(code)
    lines = ["kind: python", "file: job.py", *(f"{key}: {_yaml(value)}" for key, value in keys.items())]
    (folder / "job.yaml").write_text("\n".join(lines) + "\n")
    return folder


def _yaml(value: object) -> str:
    return {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def counting_job(folder: Path, epochs: int) -> Path:
    """Write the job whose parameters count the visits of each sample: 4 steps an epoch."""
    return write_job(folder, COUNTING, global_batch_size=16, epochs=epochs, dtype="float64", seed=5)


def forking_job(folder: Path) -> Path:
    """Write a counting job of many steps that forks a child, which lives on when its parent is killed.

    Its process number comes into the file ``child`` of each node's run folder; a file ``end`` there ends it.
    """
    return write_job(folder, FORKING, global_batch_size=16, epochs=1_000_000, dtype="float64", seed=5)


def regression_job(folder: Path, features: frozenset[str], **keys: object) -> Path:
    """Write the float64 regression: 7 steps an epoch, the last of 8 samples."""
    code = REGRESSION.replace("{features!r}", repr(sorted(features)))
    if "clipping" in features:
        keys = {"clip_grad_norm": 0.05, **keys}
    return write_job(folder, code, global_batch_size=32, dtype="float64", seed=3, **keys)


def whole_job(folder: Path, epochs: int, pace_s: float = 0.0, **keys: object) -> Path:
    """Write the job whose state holds everything that one can: 5 steps an epoch, an evaluation every 7.

    Each of a step's 8 granules takes at least ``pace_s``.
    """
    given = {"evaluate_every_steps": 7, "keep_best": True, "reproducible": True, **keys}
    code = WHOLE.replace("{pace_s!r}", repr(pace_s))
    return write_job(folder, code, global_batch_size=64, epochs=epochs, granule=8, seed=4, **given)


def noisy_job(folder: Path, **keys: object) -> Path:
    """Write the net with batch norm, dropout and augmentation: 5 steps of 4 granules an epoch."""
    return write_job(folder, NOISY, global_batch_size=32, seed=7, **{"granule": 8, **keys})


def failing_job(folder: Path, failure: str) -> Path:
    """Write a job whose loss runs ``failure`` after some steps."""
    code = FAILING.replace("{failure}", failure)
    return write_job(folder, code, global_batch_size=16, epochs=1000)
