"""``kind: table``: a CSV file and a few keys become a `LoadedJob`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from daisychain.core.job_spec import JobSpec, TableModel, Task
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
from daisychain.trainer.jobs.samples import ColumnSamples, CountedBatch
from daisychain.trainer.jobs.table_data import Table, read_table
from daisychain.trainer.jobs.table_encoding import (
    ClassTarget,
    Encoding,
    Fitted,
    Matrix,
    NumberTarget,
    Rows,
    check_target,
    fit,
    keep_rows,
    rows_with_target,
)
from daisychain.trainer.jobs.table_model import Mlp, make_optimizer

INPUTS_MAX_BYTES = 8 << 30
"""Largest encoded table: it is held in memory by every node, old machines included."""

Metrics = Callable[[nn.Module, CountedBatch], Mapping[str, tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of one table job: each a path, and its name as job.yaml has it."""

    folder: Path
    data: Path
    data_name: str
    init: tuple[Path, str] | None


def load_table(spec: JobSpec, table_model: TableModel, files: TableFiles, device: torch.device) -> LoadedJob:
    """Return the job; raises `JobError` for whatever is wrong with its data.

    torch's default dtype is the job's, and its generator is seeded by the caller.
    """
    dtype = torch.get_default_dtype()
    table, kept_notes = _read(files, table_model)
    held_out = held_out_rows(table.rows, spec.validation, spec.seed)
    fitted = fit(table, table_model.target, ~held_out, files.data_name)
    encoding = fitted.encoding
    inputs = _encoded(encoding, table, files.data_name)
    outputs = len(encoding.target.classes) if isinstance(encoding.target, ClassTarget) else 1
    network = Network(encoding.width, table_model.hidden, table_model.activation, outputs)
    model = Mlp(network, table_model.dropout)
    if files.init is not None:
        _start_from(model, encoding, *files.init)
    model.to(device, dtype)
    loss, metrics = _task_functions(encoding)
    card = ModelCard(
        job=files.folder.name, kind="table", spec=spec_as_dict(spec), network=network, encoding=encoding
    )

    def split(rows: Rows) -> ColumnSamples:
        columns = (torch.from_numpy(inputs[rows]), torch.from_numpy(fitted.targets[rows]))
        return ColumnSamples(columns, device, dtype)

    return LoadedJob(
        spec=spec,
        model=model,
        train=split(~held_out),
        validation=split(held_out) if held_out.any() else None,
        loss=loss,
        metrics=metrics,
        finish_metrics=_rooted,
        optimizer=make_optimizer(table_model, model.parameters()),
        schedule=None,
        needs_granules=spec.reproducible or table_model.dropout > 0,
        export=lambda folder: save_model(model, card, Path(folder) / "model.safetensors"),
        notes=_notes(table, kept_notes, fitted, int(held_out.sum())),
    )


def held_out_rows(rows: int, fraction: float, seed: int) -> Rows:
    """Return which rows are held out: ``round(fraction * rows)`` of them, chosen by (seed, row) alone.

    At least one row stays in training, and one is held out when ``fraction`` is above 0 and there are
    two rows or more. The rows with the least hashes are taken (splitmix64's finaliser over
    seed and row number), ties by row.
    """
    count = min(rows - 1, max(1, round(fraction * rows))) if fraction > 0 and rows > 1 else 0
    chosen = np.zeros(rows, dtype=np.bool_)
    order = np.lexsort((np.arange(rows), _hashes(rows, seed)))
    chosen[order[:count]] = True
    return chosen


def _hashes(rows: int, seed: int) -> npt.NDArray[np.uint64]:
    golden, first, second = (
        np.uint64(0x9E3779B97F4A7C15),
        np.uint64(0xBF58476D1CE4E5B9),
        np.uint64(0x94D049BB133111EB),
    )

    def mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        values = (values ^ (values >> np.uint64(30))) * first
        values = (values ^ (values >> np.uint64(27))) * second
        return values ^ (values >> np.uint64(31))

    start = mixed(np.array([seed], dtype=np.uint64) + golden)
    return mixed(start + np.arange(1, rows + 1, dtype=np.uint64) * golden)


def _read(files: TableFiles, model: TableModel) -> tuple[Table, tuple[str, ...]]:
    """Return the rows that have a target."""
    where, classification = files.data_name, model.task is Task.CLASSIFICATION
    table = read_table(files.data, where, model.ignore, (model.target,) if classification else ())
    target = table.columns.get(model.target)
    check_target(target, model.task, model.target, where)
    unknown = [name for name in model.ignore if name not in table.header]
    if unknown:
        raise JobError("job.yaml: ignore", f"{where} has no column {unknown[0]!r}", "Correct its name.")
    if table.rows == 0:
        raise JobError(where, "there are no rows under the header", "Add the data.")
    assert target is not None  # noqa: S101 - check_target refused it otherwise
    kept = rows_with_target(target)
    lost = table.rows - int(kept.sum())
    if not kept.any():
        raise JobError(where, f"no row has a value in {model.target!r}, the target", "Add them.")
    notes = (f"{lost} of {table.rows} rows have no target: left out",) if lost else ()
    return keep_rows(table, kept), notes


def _encoded(encoding: Encoding, table: Table, where: str) -> Matrix:
    dtype = np.float64 if torch.get_default_dtype() == torch.float64 else np.float32
    size_bytes = encoding.width * table.rows * np.dtype(dtype).itemsize
    if size_bytes > INPUTS_MAX_BYTES:
        raise JobError(
            where,
            f"{table.rows} rows of {encoding.width} inputs take {size_bytes >> 20} MiB, "
            f"more than the {INPUTS_MAX_BYTES >> 20} allowed",
            "Leave columns out with 'ignore', or use fewer rows.",
        )
    return encoding.encode(table.columns, table.rows, dtype)


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


def _notes(table: Table, kept: tuple[str, ...], fitted: Fitted, held_out: int) -> tuple[str, ...]:
    rows = f"{table.rows} rows: {table.rows - held_out} train, {held_out} are held out"
    return (rows, *kept, *table.notes, *fitted.notes)
