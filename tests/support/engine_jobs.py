"""Small jobs for the engine's tests, and the plain PyTorch loop that they are held against."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn import functional

from daisychain.core.job_spec import JobSpec, PythonModel
from daisychain.core.shares import Capacity, split
from daisychain.trainer.engine import granules
from daisychain.trainer.engine.engine import Engine
from daisychain.trainer.engine.exchange import Exchange
from daisychain.trainer.engine.randomness import seed_all
from daisychain.trainer.engine.sampler import granule_seed, order
from daisychain.trainer.engine.timeline import Timeline
from daisychain.trainer.jobs.loaded import LoadedJob, LossSum

FEATURES, CLASSES = 8, 3
Batch = tuple[torch.Tensor, torch.Tensor]
Optimizer = Callable[[nn.Module], torch.optim.Optimizer]
Schedule = Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]


class TensorSamples:
    """Features and labels drawn from a fixed seed."""

    def __init__(self, samples: int, seed: int, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(samples, FEATURES, generator=generator, dtype=torch.float64).to(dtype)
        self.y = torch.randint(0, CLASSES, (samples,), generator=generator)

    def __len__(self) -> int:
        return len(self.x)

    def batch(self, indices: Sequence[int], epoch: int) -> Batch:
        rows = torch.as_tensor(indices)
        return self.x[rows], self.y[rows]


class Mlp(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, CLASSES))


class Cnn(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Unflatten(1, (1, 2, 4)),
            nn.Conv2d(1, 4, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32, CLASSES),
        )


class GroupNormed(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(FEATURES, 16), nn.GroupNorm(4, 16), nn.ReLU(), nn.Linear(16, CLASSES))


class Tied(nn.Module):
    """One weight used by two layers, one parameter never used, one frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, FEATURES)
        self.second = nn.Linear(FEATURES, FEATURES)
        self.second.weight = self.first.weight
        self.unused = nn.Linear(3, 3)
        self.frozen = nn.Linear(FEATURES, FEATURES)
        self.frozen.requires_grad_(False)
        self.last = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(self.frozen(torch.tanh(self.second(torch.tanh(self.first(x))))))
        return found


class Sometimes(nn.Module):
    """A branch that only some samples reach, so on some ranks and in some steps it is unused."""

    def __init__(self) -> None:
        super().__init__()
        self.common = nn.Linear(FEATURES, CLASSES)
        self.rare = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.common(x)
        mask = x[:, 0] > 1.7
        if bool(mask.any()):
            found = found + mask.unsqueeze(1) * self.rare(x)
        return found


class Noisy(nn.Sequential):
    """Batch norm and dropout (a bias before batch norm has a gradient of nothing but rounding)."""

    def __init__(self) -> None:
        super().__init__(
            nn.Linear(FEATURES, 16, bias=False),
            nn.BatchNorm1d(16),
            nn.ReLU(),
            nn.Dropout(0.25),
            nn.Linear(16, CLASSES),
        )


def plain_loss(model: nn.Module, batch: Batch) -> LossSum:
    """Cross entropy: the mean over samples times their number, as the jobs' wrapper gives it."""
    return LossSum(functional.cross_entropy(model(batch[0]), batch[1]) * len(batch[1]), float(len(batch[1])))


def weighted_loss(model: nn.Module, batch: Batch) -> LossSum:
    """Class-weighted cross entropy as (sum, weight)."""
    weights = torch.tensor([0.25, 1.0, 3.0], dtype=batch[0].dtype)
    total = functional.cross_entropy(model(batch[0]), batch[1], weight=weights, reduction="sum")
    return LossSum(total, weights[batch[1]].sum().item())


def accuracy(model: nn.Module, batch: Batch) -> Mapping[str, tuple[float, float]]:
    found = model(batch[0])
    return {
        "accuracy": (float((found.argmax(1) == batch[1]).sum()), float(len(batch[1]))),
        "margin": (float(found.max(1).values.double().sum()), float(len(batch[1]))),
    }


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW((each for each in model.parameters() if each.requires_grad), 1e-2)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD((each for each in model.parameters() if each.requires_grad), 0.1, momentum=0.9)


def falling(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)


@dataclass(frozen=True)
class Recipe:
    """How to make one job, as often as a test needs it."""

    model: Callable[[], nn.Module] = Mlp
    optimizer: Optimizer = sgd
    loss: Callable[[nn.Module, Batch], LossSum] = plain_loss
    schedule: Schedule | None = None
    samples: int = 83
    batch: int = 24
    steps: int = 9
    clip: float | None = None
    dtype: torch.dtype = torch.float64
    granules: bool = False
    granule: int = 5
    reproducible: bool = False
    validation: int = 37

    def job(self) -> LoadedJob:
        torch.manual_seed(11)
        model = self.model().to(self.dtype)
        optimizer = self.optimizer(model)
        spec = JobSpec(
            PythonModel("model.py"),
            self.batch,
            None,
            self.steps,
            seed=3,
            clip_grad_norm=self.clip,
            dtype=str(self.dtype).removeprefix("torch."),
            reproducible=self.reproducible,
            granule=self.granule,
            threads=1,
        )
        return LoadedJob(
            spec=spec,
            model=model,
            train=TensorSamples(self.samples, 1, self.dtype),
            validation=TensorSamples(self.validation, 2, self.dtype) if self.validation else None,
            loss=self.loss,
            metrics=accuracy,
            optimizer=optimizer,
            schedule=None if self.schedule is None else self.schedule(optimizer),
            needs_granules=self.granules or self.reproducible,
            export=lambda folder: None,
        )

    def engine(self) -> Engine:
        job = self.job()
        return Engine(job, Timeline.of(job.spec, len(job.train), job.validation is not None))

    def exact(self) -> Recipe:
        return replace(self, reproducible=True)


def changing(step: int, units: int, size: int) -> tuple[int, ...]:
    """Return shares that differ from step to step; some are zero."""
    return split([Capacity(0.0, 1.0 + (step * 7 + rank * 3) % 5) for rank in range(size)], units)


def lopsided(step: int, units: int, size: int) -> tuple[int, ...]:
    """Return shares of which one rank, another each step, takes nothing."""
    idle = step % size if size > 1 else -1
    return split([Capacity(1e9 if rank == idle else 0.0, 1.0) for rank in range(size)], units)


def train(
    engine: Engine,
    exchange: Exchange,
    shares: Callable[[int, int, int], tuple[int, ...]] = changing,
    steps: range | None = None,
) -> list[float]:
    """Train ``steps`` (all by default) and return their losses."""
    losses = []
    for step in steps if steps is not None else range(engine.timeline.steps):
        position = engine.timeline.position(step)
        units = engine.units(position)
        reduced = engine.reduce_step(exchange, position, shares(step, units, exchange.size))
        losses.append(engine.apply(reduced).loss)
    return losses


def state_of(job: LoadedJob) -> dict[str, torch.Tensor]:
    """Return every number of the training state, by name, copied."""
    found = {name: tensor.detach().clone() for name, tensor in job.model.state_dict().items()}
    for number, state in job.optimizer.state_dict()["state"].items():
        for key, value in state.items():
            if isinstance(value, torch.Tensor):
                found[f"optimizer.{number}.{key}"] = value.detach().clone()
    found["lr"] = torch.tensor([group["lr"] for group in job.optimizer.param_groups], dtype=torch.float64)
    return found


def plain(recipe: Recipe) -> tuple[dict[str, torch.Tensor], list[float]]:
    """Train ``recipe`` as anybody would in one process, and return its state and its losses.

    A job with granules is what one process does that takes each granule as a batch of its own, accumulating.
    """
    job = recipe.job()
    spec, losses = job.spec, []
    per_epoch = -(-recipe.samples // recipe.batch)
    for step in range(recipe.steps):
        start = step % per_epoch * recipe.batch
        rows = order(spec.seed, step // per_epoch, recipe.samples)[start : start + recipe.batch]
        job.optimizer.zero_grad()
        if recipe.granules:
            pieces = granules.pieces(
                len(rows), recipe.granule, range(granules.count(len(rows), recipe.granule))
            )
        else:
            pieces = (granules.Piece(0, 0, len(rows)),)
        total, weight = 0.0, 0.0
        for piece in pieces:
            batch = job.train.batch(rows[piece.start : piece.stop].tolist(), 0)
            seed_all(granule_seed(spec.seed, step, piece.index))
            loss = job.loss(job.model, batch)
            loss.sum.backward()  # type: ignore[no-untyped-call]
            total, weight = total + loss.sum.item(), weight + loss.weight
        for parameter in job.model.parameters():
            if parameter.grad is not None:
                parameter.grad /= weight
        if spec.clip_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(job.model.parameters(), spec.clip_grad_norm)
        job.optimizer.step()
        if job.schedule is not None:
            job.schedule.step()
        losses.append(total / weight)
    return state_of(job), losses


def difference(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> float:
    """Return the largest relative difference of any tensor (by norm); infinite when the names differ."""
    if set(one) != set(other):
        return float("inf")
    worst = 0.0
    for name, tensor in one.items():
        size = max(tensor.double().norm().item(), 1e-30)
        worst = max(worst, (tensor.double() - other[name].double()).norm().item() / size)
    return worst


def identical(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    """Return whether two states are the same to the bit."""
    return set(one) == set(other) and all(torch.equal(one[name], other[name]) for name in one)
