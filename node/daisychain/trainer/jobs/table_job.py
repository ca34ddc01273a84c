"""``kind: table``: a CSV file and a few keys become a `LoadedJob`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from daisychain.core.job_spec import JobSpec, TableModel
from daisychain.errors import JobError
from daisychain.trainer.jobs.loaded import LoadedJob, LossSum
from daisychain.trainer.jobs.model_file import (
    ModelCard,
    Network,
    fill_model,
    read_model,
    save_model,
    spec_as_dict,
)
from daisychain.trainer.jobs.model_size import made
from daisychain.trainer.jobs.samples import ColumnSamples, CountedBatch
from daisychain.trainer.jobs.streaming.room import DataRoom
from daisychain.trainer.jobs.table_encoding import ClassTarget, Encoding, NumberTarget
from daisychain.trainer.jobs.table_model import Mlp, make_optimizer
from daisychain.trainer.jobs.table_rows import Part, load_rows

Metrics = Callable[[nn.Module, CountedBatch], Mapping[str, tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of one table job; ``init``: path and name of the model to start from."""

    folder: Path
    data: Path
    init: tuple[Path, str] | None


def load_table(
    spec: JobSpec, table_model: TableModel, files: TableFiles, device: torch.device, room: DataRoom
) -> LoadedJob:
    """Return the job; raises `JobError` for whatever is wrong with its data.

    torch's default dtype is the job's, and its generator is seeded by the caller.
    """
    dtype = torch.get_default_dtype()
    rows = load_rows(spec, table_model, files.data, room)
    encoding = rows.encoding
    outputs = len(encoding.target.classes) if isinstance(encoding.target, ClassTarget) else 1
    network = Network(encoding.width, table_model.hidden, table_model.activation, outputs)
    model = made("job.yaml: hidden", lambda: Mlp(network, table_model.dropout), dtype, room.free_bytes)
    if files.init is not None:
        _start_from(model, encoding, *files.init)
    model.to(device, dtype)
    loss, metrics = _task_functions(encoding)
    card = ModelCard(
        job=files.folder.name, kind="table", spec=spec_as_dict(spec), network=network, encoding=encoding
    )

    def split(part: Part) -> ColumnSamples:
        return ColumnSamples((part.inputs, part.targets), device, dtype, expect=part.expect)

    return LoadedJob(
        spec=spec,
        model=model,
        train=split(rows.train),
        validation=None if rows.held_out is None else split(rows.held_out),
        loss=loss,
        metrics=metrics,
        finish_metrics=_rooted,
        optimizer=make_optimizer(table_model, model.parameters()),
        schedule=None,
        needs_granules=spec.reproducible or table_model.dropout > 0,
        export=lambda folder: save_model(model, card, Path(folder) / "model.safetensors"),
        notes=rows.notes,
        holds=rows.entry,
    )


def _start_from(model: nn.Module, encoding: Encoding, path: Path, where: str) -> None:
    """Fill ``model`` from an earlier result of a table with the same inputs and classes."""
    tensors, card = read_model(path, where)
    if card is None or card.encoding is None:
        raise JobError(where, "not a table's model", "Use the model.safetensors of an earlier result.")
    earlier = _meanings(card.encoding)
    now = _meanings(encoding)
    if earlier != now:
        different = sorted(set(earlier) ^ set(now))
        shown = repr(different[0]) if different else "their order"
        raise JobError(
            where,
            f"was trained on other inputs or classes; the first difference: {shown}",
            "Use the same columns.",
        )
    fill_model(model, tensors, where)


def _meanings(encoding: Encoding) -> list[str]:
    """Return what each input and output stands for."""
    names: list[str] = []
    for column in encoding.columns:
        values = getattr(column, "values", None)
        names += [column.name] if values is None else [f"{column.name}={value}" for value in values]
        names += [f"{column.name} other"] if getattr(column, "other", False) else []
        names += [f"{column.name} missing"] if column.missing else []
    target = encoding.target
    classes = target.classes if isinstance(target, ClassTarget) else ("a number",)
    return names + [f"target {target.name}={name}" for name in classes]


def _task_functions(
    encoding: Encoding,
) -> tuple[Callable[[nn.Module, CountedBatch], LossSum], Metrics]:
    target = encoding.target

    def class_loss(model: nn.Module, batch: CountedBatch) -> LossSum:
        inputs, wanted = batch.data
        return LossSum(nn.functional.cross_entropy(model(inputs), wanted, reduction="sum"), batch.samples)

    def class_metrics(model: nn.Module, batch: CountedBatch) -> Mapping[str, tuple[float, float]]:
        inputs, wanted = batch.data
        right = int((model(inputs).argmax(dim=1) == wanted).sum())
        return {"accuracy": (float(right), float(batch.samples))}

    def number_loss(model: nn.Module, batch: CountedBatch) -> LossSum:
        inputs, wanted = batch.data
        return LossSum(nn.functional.mse_loss(model(inputs)[:, 0], wanted, reduction="sum"), batch.samples)

    def number_metrics(model: nn.Module, batch: CountedBatch) -> Mapping[str, tuple[float, float]]:
        assert isinstance(target, NumberTarget)  # noqa: S101 - chosen below for it alone
        inputs, wanted = batch.data
        miss = (model(inputs)[:, 0] - wanted).detach().double() * target.scale
        count = float(batch.samples)
        return {"mae": (float(miss.abs().sum()), count), "mse": (float(miss.square().sum()), count)}

    if isinstance(target, ClassTarget):
        return class_loss, class_metrics
    return number_loss, number_metrics


def _rooted(means: Mapping[str, float]) -> Mapping[str, float]:
    """Return ``means`` with the mean square in the target's own unit."""
    return {
        ("rmse" if name == "mse" else name): (math.sqrt(value) if name == "mse" else value)
        for name, value in means.items()
    }
