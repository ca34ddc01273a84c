"""``kind: python``: the functions of the user's file become a `LoadedJob`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import IterableDataset, TensorDataset, default_collate

from daisychain.core.job_spec import JobSpec
from daisychain.errors import JobError
from daisychain.trainer.jobs.loaded import LoadedJob, LossSum
from daisychain.trainer.jobs.model_file import ModelCard, fill_model, read_model, save_model, spec_as_dict
from daisychain.trainer.jobs.model_size import made
from daisychain.trainer.jobs.samples import ColumnSamples, CountedBatch, DatasetSamples, Items
from daisychain.trainer.jobs.streaming.room import ANY_ROOM, DataRoom
from daisychain.trainer.jobs.user_code import UserCode

LEARNING_RATE = 1e-3
"""Of Adam, when the file has no optimizer()."""

_LOSS = (
    "Return a scalar tensor, the mean over the batch's samples, or a pair (sum, weight): "
    "the sum over the samples as a scalar tensor, and the sum of their weights."
)


@dataclass(frozen=True, slots=True)
class PythonFiles:
    """The files of one python job; ``init``: path and name of the model to start from."""

    folder: Path
    file: Path
    init: tuple[Path, str] | None


def load_python(
    spec: JobSpec, files: PythonFiles, device: torch.device, room: DataRoom = ANY_ROOM
) -> LoadedJob:
    """Return the job; raises `JobError` with file and line for whatever is wrong in the user's code.

    torch's default dtype is the job's, and the generators are seeded by the caller. Whether the loss can be
    summed over parts of a batch, and what else an exact gradient needs, is tried by `engine.checks`.
    """
    code = UserCode(files.folder, files.file)
    user_loss = code.needed("loss", "loss(model, batch)", "the mean over the samples or (sum, weight)")
    make_data = code.needed("dataset", "dataset(split)", "the split 'train' or 'validation'")
    dtype = torch.get_default_dtype()
    model = _model(code, dtype, room)
    train = _split(code, make_data, "train", spec, device)
    if train is None or len(train) == 0:
        raise JobError(
            f"{code.name}: dataset", "dataset('train') has no samples", "Return the training data."
        )
    validation = _split(code, make_data, "validation", spec, device)
    if (spec.keep_best or spec.early_stopping is not None) and validation is None:
        key = "keep_best" if spec.keep_best else "early_stopping"
        raise JobError(
            f"job.yaml: {key}",
            "needs held-out samples, but dataset('validation') gives none",
            f"Return some in {code.name}, or remove the key.",
        )
    if files.init is not None:
        tensors, _ = read_model(*files.init)
        fill_model(model, tensors, files.init[1])
    model.to(device)
    optimizer = _optimizer(code, model)
    card = ModelCard(job=files.folder.name, kind="python", spec=spec_as_dict(spec))
    return LoadedJob(
        spec=spec,
        model=model,
        train=train,
        validation=validation,
        loss=_loss(code, user_loss),
        metrics=_metrics(code),
        optimizer=optimizer,
        schedule=_schedule(code, optimizer, validation is not None),
        needs_granules=spec.reproducible or has_coupling_modules(model),
        export=lambda folder: save_model(model, card, Path(folder) / "model.safetensors"),
        locate=code.locate,
        notes=_notes(len(train), 0 if validation is None else len(validation), model),
    )


def has_coupling_modules(model: nn.Module) -> bool:
    """Whether ``model`` has batch norm, or a module that draws random numbers in training."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            return True
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
            return True
        if isinstance(module, nn.RReLU):
            return True
        if isinstance(module, (nn.RNNBase, nn.MultiheadAttention)) and module.dropout > 0:
            return True
    return False


def _model(code: UserCode, dtype: torch.dtype, room: DataRoom) -> nn.Module:
    make = code.needed("model", "model()", "the torch.nn.Module to train")
    where = f"{code.name}: model"
    model = made(where, lambda: code.call("model", make), dtype, room.free_bytes)
    if not isinstance(model, nn.Module):
        raise JobError(where, f"model() returned a {type(model).__name__}", "Return a torch.nn.Module.")
    model = model.to("cpu", dtype)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise JobError(where, "the model has no parameter to train", "Set requires_grad on some.")
    for name, value in model.state_dict().items():
        if not isinstance(value, torch.Tensor):
            raise JobError(
                where, f"the state {name!r} is no tensor", "Keep only tensors in the model's state."
            )
    return model


def _split(
    code: UserCode, make: Callable[..., Any], split: str, spec: JobSpec, device: torch.device
) -> ColumnSamples | DatasetSamples | None:
    """Return one split; None when the user has none, or an empty one."""
    data = code.call("dataset", make, split)
    where, dtype = f"{code.name}: dataset", torch.get_default_dtype()
    if data is None:
        return None
    if isinstance(data, IterableDataset):
        raise JobError(
            where,
            f"dataset({split!r}) returned an IterableDataset, whose samples have no numbers",
            "Return a map-style data set (with __len__ and __getitem__) or a tuple of tensors.",
        )
    if isinstance(data, TensorDataset):
        data = data.tensors
    columns = _columns(data)
    if columns is not None:
        lengths = {len(column) for column in columns}
        if len(lengths) > 1:
            raise JobError(
                where,
                f"dataset({split!r}) returned arrays of different lengths: {sorted(lengths)}",
                "Give each one entry a sample.",
            )
        return ColumnSamples(data, device, dtype) if lengths.pop() > 0 else None
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        raise JobError(
            where,
            f"dataset({split!r}) returned a {type(data).__name__}",
            "Return a map-style data set (with __len__ and __getitem__), a tuple of tensors, or None.",
        )
    length = int(code.call("dataset.__len__", len, data))
    collate = code.function("collate")
    items = Items(
        split,
        length,
        lambda index: code.call("dataset.__getitem__", data.__getitem__, index),
        lambda made: code.call("collate", collate or default_collate, made),
    )
    return DatasetSamples(items, spec.seed, device, dtype) if length > 0 else None


def _columns(data: Any) -> list[Any] | None:
    """Return the arrays of ``data`` when it is an array, or a tuple or dict of nothing else."""
    parts = [data]
    if isinstance(data, tuple):
        parts = list(data)
    elif isinstance(data, dict):
        parts = list(data.values())
    if parts and all(isinstance(part, (torch.Tensor, np.ndarray)) and part.ndim > 0 for part in parts):
        return parts
    return None


def _loss(code: UserCode, user_loss: Callable[..., Any]) -> Callable[[nn.Module, CountedBatch], LossSum]:
    where = f"{code.name}: loss"

    def loss(model: nn.Module, batch: CountedBatch) -> LossSum:
        found = code.call("loss", user_loss, model, batch.data)
        if isinstance(found, torch.Tensor):
            return LossSum(_scalar(found, where) * batch.samples, float(batch.samples))
        if isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], torch.Tensor):
            weight = found[1].detach() if isinstance(found[1], torch.Tensor) else found[1]
            try:
                return LossSum(_scalar(found[0], where), float(weight))
            except (TypeError, ValueError, RuntimeError):
                pass
        raise JobError(where, f"loss() returned a {type(found).__name__}", _LOSS)

    return loss


def _scalar(value: torch.Tensor, where: str) -> torch.Tensor:
    if value.numel() != 1:
        raise JobError(where, f"loss() returned a tensor of shape {tuple(value.shape)}", _LOSS)
    return value.reshape(())


def _metrics(code: UserCode) -> Callable[[nn.Module, CountedBatch], Mapping[str, tuple[float, float]]]:
    user_metrics = code.function("metrics")
    where = f"{code.name}: metrics"

    def metrics(model: nn.Module, batch: CountedBatch) -> Mapping[str, tuple[float, float]]:
        if user_metrics is None:
            return {}
        found = code.call("metrics", user_metrics, model, batch.data)
        try:
            return {str(name): (float(total), float(count)) for name, (total, count) in found.items()}
        except (AttributeError, TypeError, ValueError, RuntimeError):
            raise JobError(
                where,
                f"metrics() returned a {type(found).__name__}",
                'Return a dict of pairs, such as {"accuracy": (number right, number of samples)}.',
            ) from None

    return metrics


def _optimizer(code: UserCode, model: nn.Module) -> torch.optim.Optimizer:
    make = code.function("optimizer")
    if make is None:
        return torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    where = f"{code.name}: optimizer"
    optimizer = code.call("optimizer", make, list(model.parameters()))
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise JobError(
            where, f"optimizer() returned a {type(optimizer).__name__}", "Return a torch.optim.Optimizer."
        )
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise JobError(where, "SparseAdam wants sparse gradients, which a chain does not sum", "Use Adam.")
    return optimizer


def _schedule(
    code: UserCode, optimizer: torch.optim.Optimizer, has_validation: bool
) -> torch.optim.lr_scheduler.LRScheduler | None:
    make = code.function("schedule")
    if make is None:
        return None
    schedule = code.call("schedule", make, optimizer)
    where = f"{code.name}: schedule"
    if isinstance(schedule, torch.optim.lr_scheduler.ReduceLROnPlateau):
        if not has_validation:
            raise JobError(
                where,
                "ReduceLROnPlateau goes by the held-out loss, but dataset('validation') gives none",
                "Return some, or use a schedule of the step alone, such as CosineAnnealingLR.",
            )
        if schedule.mode != "min":
            raise JobError(
                where,
                "ReduceLROnPlateau is told the held-out loss, and waits for it to rise",
                'Make it with mode="min".',
            )
    if schedule is not None and not isinstance(schedule, torch.optim.lr_scheduler.LRScheduler):
        raise JobError(
            where,
            f"schedule() returned a {type(schedule).__name__}",
            "Return one of torch.optim.lr_scheduler, or None.",
        )
    return schedule


def _notes(train: int, validation: int, model: nn.Module) -> tuple[str, ...]:
    parameters = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return (f"{train} samples train, {validation} are held out; {parameters} parameters",)
