"""A trained table applied to new rows: the CSV comes back with predictions; runs no code of the job."""

from __future__ import annotations

import csv
import os
import secrets
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch

from daisychain.errors import JobError, StorageError
from daisychain.trainer.jobs.model_file import ModelCard, fill_model, read_model
from daisychain.trainer.jobs.streaming.blocks import Floats
from daisychain.trainer.jobs.table_data import (
    CsvRows,
    NumberBuilder,
    TextBuilder,
    TextColumn,
    open_csv,
)
from daisychain.trainer.jobs.table_encoding import ClassTarget, Encoding, NumberColumn
from daisychain.trainer.jobs.table_model import Mlp

CHUNK_ROWS = 4096
"""Rows predicted at a time: bounds the memory, whatever the file's length."""

PREDICTION, PROBABILITY = "prediction", "probability"


def predict_rows(model_file: Path, rows_csv: Path, out: Path) -> int:
    """Write ``rows_csv`` with a prediction for each row to ``out``; return the number of rows.

    ``model_file`` is a table's ``result/model.safetensors``. The rows need the columns that were trained
    on, in any order; others are carried along, the target too if it is there. Missing values
    and categories never seen are treated as in training. Classification adds the columns ``prediction``
    and ``probability`` (of that class), regression ``prediction`` in the target's unit. ``out`` is
    replaced as a whole, when every row is done. Raises `JobError` for an unfit model or rows,
    `StorageError` when ``out`` cannot be written.
    """
    model, encoding = load_table_model(model_file)
    temporary = out.with_name(f".{out.name}-{secrets.token_hex(4)}")
    where = rows_csv.name
    try:
        with open_csv(rows_csv, where) as rows:
            added = (PREDICTION, PROBABILITY) if isinstance(encoding.target, ClassTarget) else (PREDICTION,)
            _check_header(rows.header, added, encoding, where)
            with temporary.open("w", encoding="utf-8", newline="") as stream:
                writer = csv.writer(stream, delimiter=rows.delimiter, lineterminator="\n")
                writer.writerow((*rows.header, *added))
                count = 0
                for chunk, answers in _answered(rows, model, encoding, where):
                    writer.writerows([*row, *answer] for row, answer in zip(chunk, answers, strict=True))
                    count += len(chunk)
                stream.flush()
                os.fsync(stream.fileno())
        temporary.replace(out)
        return count
    except OSError as error:
        raise StorageError(
            f"{out} cannot be written: {error.strerror or error}", "Name another file."
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


def load_table_model(model_file: Path) -> tuple[Mlp, Encoding]:
    """Return the network, ready to predict, and its encoding; raises `JobError` when it is no table's."""
    where = model_file.name
    tensors, card = read_model(model_file, where)
    if card is None or card.network is None or card.encoding is None:
        raise _no_table(card, where)
    network, encoding = card.network, card.encoding
    outputs = len(encoding.target.classes) if isinstance(encoding.target, ClassTarget) else 1
    if network.inputs != encoding.width or network.outputs != outputs:
        raise JobError(where, "its network does not fit its encoding", "Train the job again.")
    try:
        model = Mlp(network)
    except (KeyError, ValueError, RuntimeError, TypeError) as error:
        raise JobError(where, f"its network cannot be built: {error}", "Train the job again.") from None
    dtype = next((tensor.dtype for tensor in tensors.values()), torch.float32)
    model.to(dtype)
    fill_model(model, tensors, where)
    return model.eval(), encoding


def _no_table(card: ModelCard | None, where: str) -> JobError:
    if card is not None and card.kind == "python":
        described = card.spec.get("model")
        name = described.get("file") if isinstance(described, dict) else "the job's file"
        return JobError(
            where,
            f"the model of a python job, which only its own code can apply (job {card.job!r})",
            f"In Python: net = model() as in {name}, then "
            "net.load_state_dict(safetensors.torch.load_file('result/model.safetensors')); net.eval().",
        )
    return JobError(where, "not a model that DaisyChain trained on a table", "Name a table job's result.")


def _check_header(header: tuple[str, ...], added: tuple[str, ...], encoding: Encoding, where: str) -> None:
    absent = [column.name for column in encoding.columns if column.name not in header]
    if absent:
        shown = ", ".join(repr(name) for name in absent[:5]) + (", ..." if len(absent) > 5 else "")
        raise JobError(
            f"{where}:1",
            f"lacks {len(absent)} of the columns the model was trained on: {shown}",
            "Add them; a cell may be empty where the value is not known.",
        )
    for name in added:
        if name in header:
            raise JobError(
                f"{where}:1", f"has a column {name!r} already", "Rename it: a prediction goes there."
            )


def _answered(
    rows: CsvRows, model: Mlp, encoding: Encoding, where: str
) -> Iterator[tuple[list[list[str]], list[tuple[str, ...]]]]:
    """Yield the rows in chunks, each with the cells to add to its rows."""
    places = {name: place for place, name in enumerate(rows.header)}
    lines = ((row, rows.line) for row in rows)
    dtype = next(model.parameters()).dtype
    while chunk := list(islice(lines, CHUNK_ROWS)):
        columns: dict[str, Floats | TextColumn] = {}
        for column in encoding.columns:
            cells = [row[places[column.name]] for row, _ in chunk]
            at = [line for _, line in chunk]
            if isinstance(column, NumberColumn):
                columns[column.name] = _numbers(cells, at, column.name, where)
            else:
                builder = TextBuilder()
                codes = builder.take(cells, at)
                if builder.values is None:
                    raise JobError(where, f"column {column.name!r} holds prose", "Shorten its cells.")
                columns[column.name] = TextColumn(codes, builder.values)
        inputs = encoding.encode(columns, len(chunk), "float64" if dtype == torch.float64 else "float32")
        with torch.inference_mode():
            outputs = model(torch.from_numpy(inputs).to(dtype)).double()
        yield [row for row, _ in chunk], _answers(outputs, encoding)


def _answers(outputs: torch.Tensor, encoding: Encoding) -> list[tuple[str, ...]]:
    target = encoding.target
    if isinstance(target, ClassTarget):
        probabilities, chosen = outputs.softmax(dim=1).max(dim=1)
        return [
            (target.classes[index], f"{probability:.6f}")
            for index, probability in zip(chosen.tolist(), probabilities.tolist(), strict=True)
        ]
    return [(f"{value * target.scale + target.mean:.9g}",) for value in outputs[:, 0].tolist()]


def _numbers(cells: list[str], lines: list[int], name: str, where: str) -> Floats:
    builder = NumberBuilder()
    numbers = builder.take(cells, lines)
    if builder.texts:
        value, line = builder.first_text
        raise JobError(
            f"{where}:{line}",
            f"column {name!r} holds {value[:40]!r}, but was trained on numbers",
            "Correct it, or leave the cell empty.",
        )
    return numbers
