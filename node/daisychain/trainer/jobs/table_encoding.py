"""From a table's columns to a network's inputs and back: learnt from the training rows, kept as JSON.

Numbers are centred and scaled by the training rows' mean and standard deviation; a missing one becomes
their median, and a column that had missing values gets an indicator beside it. Text becomes one input
a category. Sums are exact, so every machine learns the same encoding to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from daisychain.core.job_spec import Task
from daisychain.errors import JobError
from daisychain.trainer.jobs.streaming.blocks import Block, Cells, Codes, Floats
from daisychain.trainer.jobs.streaming.statistics import (
    NumberFacts,
    TextFacts,
    Training,
    number_facts,
    text_facts,
)
from daisychain.trainer.jobs.table_data import VALUES_MAX, Table, TextColumn

CATEGORIES_MAX = 64
"""Most categories of a column with an input of their own; the rarer ones share the input "other"."""

IDENTIFIER_SHARE = 0.9
"""A text column with more than `CATEGORIES_MAX` values, one for this share of its rows, only names rows."""

SCALED_MAX = 1e6
"""Scaled numbers are cut off here: no training row is so far out (|z| < sqrt(rows)), and a wild value in
rows to predict must not become infinite in float32."""

CLASSES_MAX = 1000
"""Most classes: more is a number or an identifier taken for a class."""

Targets = npt.NDArray[np.int64] | Floats
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
        filled = np.where(gone, self.fill, column) if gone.any() else column
        scaled = (filled - self.mean) / self.scale
        out[:, 0] = np.clip(scaled, -SCALED_MAX, SCALED_MAX, out=scaled)
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

    def places(self, values: tuple[str, ...]) -> Codes:
        """Return the input of each of a table's ``values``, and last that of a missing one; -1: none."""
        place = {value: index for index, value in enumerate(self.values)}
        unknown = len(self.values) if self.other else -1
        places = [place.get(value, unknown) for value in values]
        places.append(self.width - 1 if self.missing else -1)  # code -1: the last
        return np.array(places, dtype=np.int32)

    def encode(self, chosen: Codes, out: Matrix) -> None:
        """Fill ``out`` (rows x width); ``chosen``: each row's input, see `places`."""
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
        texts = {name: cells.values for name, cells in columns.items() if isinstance(cells, TextColumn)}
        block = {
            name: cells.codes if isinstance(cells, TextColumn) else cells for name, cells in columns.items()
        }
        return Encoder(self, texts).inputs(block, rows, dtype)


class Encoder:
    """An encoding made ready for one table's text values, to be applied to its blocks one after the other."""

    def __init__(self, encoding: Encoding, texts: Mapping[str, tuple[str, ...] | None]) -> None:
        self._encoding = encoding
        self._places = {
            column.name: column.places(texts.get(column.name) or ())
            for column in encoding.columns
            if isinstance(column, CategoryColumn)
        }
        self._text_names = frozenset(texts)
        target = encoding.target
        if isinstance(target, ClassTarget):
            place = {name: index for index, name in enumerate(target.classes)}
            values = texts.get(target.name) or ()
            self._class_of = np.array([place.get(value, -1) for value in values], dtype=np.int64)

    def inputs(self, block: Block, rows: int, dtype: npt.DTypeLike) -> Matrix:
        """Return the inputs of the block's ``rows`` rows; it must hold every column of the encoding."""
        out: Matrix = np.empty((rows, self._encoding.width), dtype=dtype)
        start = 0
        for column in self._encoding.columns:
            part = out[:, start : start + column.width]
            cells: Cells = block[column.name]
            if isinstance(column, CategoryColumn) != (column.name in self._text_names):
                raise TypeError(f"column {column.name!r} is not of the kind it was trained with")
            if isinstance(column, CategoryColumn):
                column.encode(self._places[column.name][cells.astype(np.int64)], part)
            else:
                column.encode(cells.astype(np.float64, copy=False), part)
            start += column.width
        return out

    def targets(self, block: Block) -> Targets:
        """Return the block's targets in the encoding's terms."""
        target = self._encoding.target
        cells = block[target.name]
        if isinstance(target, ClassTarget):
            return self._class_of[cells.astype(np.int64)]
        return (cells.astype(np.float64, copy=False) - target.mean) / target.scale


@dataclass(frozen=True, slots=True)
class Fitted:
    """An encoding, and what was noticed while fitting it."""

    encoding: Encoding
    notes: tuple[str, ...]


def fit(table: Table, target: str, training: Training, where: str) -> Fitted:
    """Return the encoding of ``table`` as its ``training`` rows give it.

    ``table`` holds only rows with a target. Raises `JobError` when nothing can be learnt.
    """
    notes: list[str] = []
    sizes = {name: len(values) for name, values in table.texts.items() if values is not None}
    numbers = number_facts(table.blocks, [name for name in table.names if name not in table.texts], training)
    texts = text_facts(table.blocks, sizes, training)
    columns: list[NumberColumn | CategoryColumn] = []
    for name in table.names:
        if name == target:
            continue
        learnt: NumberColumn | CategoryColumn | None
        if name in numbers:
            learnt = _fit_number(name, numbers[name], notes)
        else:
            learnt = _fit_category(name, table.texts[name], texts.get(name), notes)
        if learnt is not None:
            columns.append(learnt)
    if not columns:
        raise JobError(
            where, "no column is left to learn from", "Every column is constant, empty or ignored."
        )
    if target in table.texts:
        classes = _fit_classes(target, table.texts[target], texts.get(target), where, notes)
        return Fitted(Encoding(tuple(columns), classes), tuple(notes))
    goal = numbers[target]
    if goal.scale == 0:
        raise JobError(
            where, f"the target column {target!r} holds one value only", "There is nothing to learn."
        )
    return Fitted(Encoding(tuple(columns), NumberTarget(target, goal.mean, goal.scale)), tuple(notes))


def check_target(table: Table, task: Task, target: str, where: str) -> None:
    """Raise `JobError` when the target column is absent or not of the task's kind."""
    if target not in table.names:
        raise JobError(
            where, f"has no column {target!r}, the target", "Name one of its columns as the target."
        )
    if task is Task.REGRESSION and target in table.texts:
        raise JobError(
            where,
            f"the target column {target!r} holds text, but the task is regression",
            "Clean the column, or use 'task: classification'.",
        )


def _fit_number(name: str, facts: NumberFacts, notes: list[str]) -> NumberColumn | None:
    if facts.present == 0 or (facts.scale == 0 and not facts.missing):
        kind = "has no values" if facts.present == 0 else "holds one value only"
        notes.append(f"column {name!r} {kind}: left out")
        return None
    if facts.missing:
        notes.append(
            f"column {name!r}: {facts.missing} missing values in the training rows, filled with the median"
            f" {facts.median:g} and marked by an input of their own"
        )
    scale = facts.scale if facts.scale > 0 else 1.0
    return NumberColumn(name, facts.mean, scale, facts.median, facts.missing > 0)


def _fit_category(
    name: str, values: tuple[str, ...] | None, facts: TextFacts | None, notes: list[str]
) -> CategoryColumn | None:
    if values is None or facts is None:
        notes.append(
            f"column {name!r} has more than {VALUES_MAX} different values, or very long ones: left out"
        )
        return None
    counts = {values[code]: int(facts.training[code]) for code in np.flatnonzero(facts.training)}
    missing, present = facts.missing, int(facts.training.sum())
    if len(counts) + (missing > 0) <= 1:
        notes.append(f"column {name!r} {'holds one value only' if counts else 'has no values'}: left out")
        return None
    if len(counts) > CATEGORIES_MAX and len(counts) > IDENTIFIER_SHARE * present:
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


def _fit_classes(
    target: str, values: tuple[str, ...] | None, facts: TextFacts | None, where: str, notes: list[str]
) -> ClassTarget:
    if values is None or facts is None:
        raise JobError(
            where,
            f"the target column {target!r} holds more than {VALUES_MAX} classes, or very long ones;"
            f" {CLASSES_MAX} are allowed",
            "If it holds a quantity, use 'task: regression'.",
        )
    used = np.flatnonzero(facts.everywhere)
    classes = _sorted_classes([values[code] for code in used])
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
    absent = len(used) - len(np.flatnonzero(facts.training))
    if absent:
        notes.append(f"{absent} classes of {target!r} occur in no training row: they cannot be learnt")
    return ClassTarget(target, classes)


def _sorted_classes(names: list[str]) -> tuple[str, ...]:
    """Return ``names`` in order: as numbers when all are, otherwise as text."""
    try:
        return tuple(sorted(names, key=lambda name: (float(name), name)))
    except ValueError:
        return tuple(sorted(names))
