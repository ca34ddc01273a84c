"""From a table's columns to a network's inputs and back: learnt from the training rows, kept as JSON.

Numbers are centred and scaled by the training rows' mean and standard deviation; a missing one becomes
their median, and a column that had missing values gets an indicator beside it. Text becomes one input
a category. Means are exact sums (math.fsum), so every machine learns the same encoding to the bit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from daisychain.core.job_spec import Task
from daisychain.errors import JobError
from daisychain.trainer.jobs.table_data import Floats, Table, TextColumn

CATEGORIES_MAX = 64
"""Most categories of a column with an input of their own; the rarer ones share the input "other"."""

IDENTIFIER_SHARE = 0.9
"""A text column with more than `CATEGORIES_MAX` values, one for this share of its rows, only names rows."""

SCALED_MAX = 1e6
"""Scaled numbers are cut off here: no training row is so far out (|z| < sqrt(rows)), and a wild value in
rows to predict must not become infinite in float32."""

CLASSES_MAX = 1000
"""Most classes: more is a number or an identifier taken for a class."""

Rows = npt.NDArray[np.bool_]
Matrix = npt.NDArray[np.floating]


class NumberColumn(msgspec.Struct, frozen=True, tag="number"):
    """``(x - mean) / scale``; ``fill`` instead of a missing x; ``missing``: whether an indicator follows."""

    name: str
    mean: float
    scale: float
    fill: float
    missing: bool

    @property
    def width(self) -> int:
        """The number of inputs."""
        return 2 if self.missing else 1

    def encode(self, column: Floats, out: Matrix) -> None:
        """Fill ``out`` (rows x width)."""
        gone = np.isnan(column)
        scaled = (np.where(gone, self.fill, column) - self.mean) / self.scale
        out[:, 0] = np.clip(scaled, -SCALED_MAX, SCALED_MAX)
        if self.missing:
            out[:, 1] = gone


class CategoryColumn(msgspec.Struct, frozen=True, tag="category"):
    """One input for each of ``values``, then one for ``other`` and one for ``missing`` where they occurred.

    What has no input (a category never seen in training) is all zeros.
    """

    name: str
    values: tuple[str, ...]
    other: bool
    missing: bool

    @property
    def width(self) -> int:
        """The number of inputs."""
        return len(self.values) + self.other + self.missing

    def encode(self, column: TextColumn, out: Matrix) -> None:
        """Fill ``out`` (rows x width)."""
        place = {value: index for index, value in enumerate(self.values)}
        unknown = len(self.values) if self.other else -1
        places = [place.get(value, unknown) for value in column.values]
        places.append(self.width - 1 if self.missing else -1)  # code -1: the last
        chosen = np.array(places, dtype=np.int64)[column.codes]
        out[:] = 0
        rows = np.flatnonzero(chosen >= 0)
        out[rows, chosen[rows]] = 1


class ClassTarget(msgspec.Struct, frozen=True, tag="classes"):
    """The target is one of ``classes``."""

    name: str
    classes: tuple[str, ...]


class NumberTarget(msgspec.Struct, frozen=True, tag="number"):
    """The target is a number, trained as ``(y - mean) / scale``."""

    name: str
    mean: float
    scale: float


class Encoding(msgspec.Struct, frozen=True):
    """All that is needed to turn rows into inputs, and outputs into answers."""

    columns: tuple[NumberColumn | CategoryColumn, ...]
    target: ClassTarget | NumberTarget
    version: int = 1

    @property
    def width(self) -> int:
        """The number of the network's inputs."""
        return sum(column.width for column in self.columns)

    def encode(self, columns: Mapping[str, Floats | TextColumn], rows: int, dtype: npt.DTypeLike) -> Matrix:
        """Return the inputs of ``rows`` rows; every column of the encoding must be in ``columns``."""
        out: Matrix = np.empty((rows, self.width), dtype=dtype)
        start = 0
        for column in self.columns:
            block = out[:, start : start + column.width]
            match column, columns[column.name]:
                case NumberColumn(), np.ndarray() as numbers:
                    column.encode(numbers, block)
                case CategoryColumn(), TextColumn() as text:
                    column.encode(text, block)
                case _:
                    raise TypeError(f"column {column.name!r} is not of the kind it was trained with")
            start += column.width
        return out


@dataclass(frozen=True, slots=True)
class Fitted:
    """An encoding, the rows' targets in its terms, and what was noticed while fitting it."""

    encoding: Encoding
    targets: npt.NDArray[np.int64] | Floats
    notes: tuple[str, ...]


def rows_with_target(column: Floats | TextColumn) -> Rows:
    """Return which rows have a target."""
    return column.codes >= 0 if isinstance(column, TextColumn) else ~np.isnan(column)


def fit(table: Table, target: str, training: Rows, where: str) -> Fitted:
    """Return the encoding of ``table`` as its ``training`` rows give it.

    ``table`` holds only rows with a target (see `keep_rows`). Raises `JobError` when nothing can be learnt.
    """
    notes: list[str] = []
    columns: list[NumberColumn | CategoryColumn] = []
    for name, column in table.columns.items():
        if name == target:
            continue
        if isinstance(column, TextColumn):
            learnt: NumberColumn | CategoryColumn | None = _fit_category(name, column, training, notes)
        else:
            learnt = _fit_number(name, column, training, notes)
        if learnt is not None:
            columns.append(learnt)
    if not columns:
        raise JobError(
            where, "no column is left to learn from", "Every column is constant, empty or ignored."
        )
    goal = table.columns[target]
    if isinstance(goal, TextColumn):
        classes, targets = _fit_classes(target, goal, training, where, notes)
        return Fitted(Encoding(tuple(columns), classes), targets, tuple(notes))
    mean, scale = _moments(goal[training])
    if scale == 0:
        raise JobError(
            where, f"the target column {target!r} holds one value only", "There is nothing to learn."
        )
    return Fitted(
        Encoding(tuple(columns), NumberTarget(target, mean, scale)), (goal - mean) / scale, tuple(notes)
    )


def keep_rows(table: Table, rows: Rows) -> Table:
    """Return ``table`` with only ``rows``."""
    columns: dict[str, Floats | TextColumn] = {
        name: TextColumn(column.codes[rows], column.values)
        if isinstance(column, TextColumn)
        else column[rows]
        for name, column in table.columns.items()
    }
    return Table(table.header, int(rows.sum()), columns, table.notes)


def check_target(column: Floats | TextColumn | None, task: Task, target: str, where: str) -> None:
    """Raise `JobError` when the target column is absent or not of the task's kind."""
    if column is None:
        raise JobError(
            where, f"has no column {target!r}, the target", "Name one of its columns as the target."
        )
    if task is Task.REGRESSION and isinstance(column, TextColumn):
        raise JobError(
            where,
            f"the target column {target!r} holds text, but the task is regression",
            "Clean the column, or use 'task: classification'.",
        )


def _moments(values: Floats) -> tuple[float, float]:
    """Return mean and standard deviation (of the population), the same on every machine."""
    if len(values) == 0 or (values == values[0]).all():
        return (float(values[0]) if len(values) else 0.0), 0.0
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(math.fsum((values - mean) ** 2) / len(values))


def _fit_number(name: str, column: Floats, training: Rows, notes: list[str]) -> NumberColumn | None:
    values = column[training]
    present = values[~np.isnan(values)]
    missing = len(values) - len(present)
    mean, scale = _moments(present)
    if len(present) == 0 or (scale == 0 and not missing):
        kind = "has no values" if len(present) == 0 else "holds one value only"
        notes.append(f"column {name!r} {kind}: left out")
        return None
    fill = float(np.median(present))
    if missing:
        notes.append(
            f"column {name!r}: {missing} missing values in the training rows, filled with the median {fill:g}"
            " and marked by an input of their own"
        )
    return NumberColumn(name, mean, scale if scale > 0 else 1.0, fill, missing > 0)


def _fit_category(name: str, column: TextColumn, training: Rows, notes: list[str]) -> CategoryColumn | None:
    codes = column.codes[training]
    counts = Counter({column.values[code]: int(n) for code, n in _counted(codes[codes >= 0])})
    missing = int((codes < 0).sum())
    if len(counts) + (missing > 0) <= 1:
        notes.append(f"column {name!r} {'holds one value only' if counts else 'has no values'}: left out")
        return None
    if len(counts) > CATEGORIES_MAX and len(counts) > IDENTIFIER_SHARE * (len(codes) - missing):
        notes.append(f"column {name!r} has a value of its own in nearly every row ({len(counts)}): left out")
        return None
    ranked = sorted(counts, key=lambda value: (-counts[value], value))
    kept = tuple(sorted(ranked[:CATEGORIES_MAX]))
    if len(ranked) > CATEGORIES_MAX:
        rest = sum(counts[value] for value in ranked[CATEGORIES_MAX:])
        notes.append(
            f"column {name!r} has {len(ranked)} categories: the {CATEGORIES_MAX} most frequent have an input"
            f" each, the others ({rest} rows) share one"
        )
    if missing:
        notes.append(
            f"column {name!r}: {missing} missing values in the training rows, a category of their own"
        )
    return CategoryColumn(name, kept, len(ranked) > CATEGORIES_MAX, missing > 0)


def _counted(codes: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    found, counts = np.unique(codes, return_counts=True)
    return list(zip(found.tolist(), counts.tolist(), strict=True))


def _fit_classes(
    target: str, column: TextColumn, training: Rows, where: str, notes: list[str]
) -> tuple[ClassTarget, npt.NDArray[np.int64]]:
    used = np.unique(column.codes)
    classes = _sorted_classes([column.values[code] for code in used])
    if len(classes) < 2:
        raise JobError(
            where, f"the target column {target!r} holds one class only", "There is nothing to learn."
        )
    if len(classes) > CLASSES_MAX:
        raise JobError(
            where,
            f"the target column {target!r} holds {len(classes)} classes, more than the {CLASSES_MAX} allowed",
            "If it holds a quantity, use 'task: regression'.",
        )
    absent = len(used) - len(np.unique(column.codes[training]))
    if absent:
        notes.append(f"{absent} classes of {target!r} occur in no training row: they cannot be learnt")
    place = {name: index for index, name in enumerate(classes)}
    of_code = np.array([place.get(value, -1) for value in column.values], dtype=np.int64)
    return ClassTarget(target, classes), of_code[column.codes]


def _sorted_classes(names: list[str]) -> tuple[str, ...]:
    """Return ``names`` in order: as numbers when all are, otherwise as text."""
    try:
        return tuple(sorted(names, key=lambda name: (float(name), name)))
    except ValueError:
        return tuple(sorted(names))
