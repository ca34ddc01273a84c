"""Encodings: learnt from training rows alone, exact, and the same after a trip through JSON."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daisychain.errors import JobError
from daisychain.trainer.jobs.streaming.blocks import Floats, StoredBlocks
from daisychain.trainer.jobs.table_data import Table, TextColumn
from daisychain.trainer.jobs.table_encoding import (
    CATEGORIES_MAX,
    CLASSES_MAX,
    CategoryColumn,
    ClassTarget,
    Encoder,
    Encoding,
    Fitted,
    NumberColumn,
    NumberTarget,
    fit,
)
from daisychain.trainer.jobs.table_rows import NoScratch


def text(*values: str | None) -> TextColumn:
    known = list(dict.fromkeys(value for value in values if value is not None))
    codes = [-1 if value is None else known.index(value) for value in values]
    return TextColumn(np.array(codes, dtype=np.int32), tuple(known))


def floats(*values: float | None) -> Floats:
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


def as_table(columns: dict[str, Floats | TextColumn], block_rows: int) -> Table:
    """The columns as a table in blocks of ``block_rows`` rows."""
    cells = {
        name: column.codes if isinstance(column, TextColumn) else column for name, column in columns.items()
    }
    blocks = StoredBlocks(1 << 30, NoScratch("rows.csv"))
    for start in range(0, length(columns), block_rows):
        blocks.append({name: column[start : start + block_rows] for name, column in cells.items()})
    texts = {name: column.values for name, column in columns.items() if isinstance(column, TextColumn)}
    return Table(tuple(columns), tuple(columns), texts, blocks)


def length(columns: dict[str, Floats | TextColumn]) -> int:
    first = next(iter(columns.values()))
    return len(first.codes if isinstance(first, TextColumn) else first)


def fitted(training: int | None = None, block_rows: int = 3, **columns: Floats | TextColumn) -> Fitted:
    """Fit on the first ``training`` rows (None: all); the column y is the target."""
    rows = length(columns)
    columns.setdefault("y", text(*("ab"[row % 2] for row in range(rows))))
    chosen = np.arange(rows) < (rows if training is None else training)
    return fit(as_table(columns, block_rows), "y", lambda start, stop: chosen[start:stop], "rows.csv")


def targets(found: Fitted, **columns: Floats | TextColumn) -> list[float]:
    table = as_table(columns, 2)
    encoder = Encoder(found.encoding, table.texts)
    return [value for _, block in table.blocks.walk(["y"]) for value in encoder.targets(block).tolist()]


def encoded(found: Fitted, **columns: Floats | TextColumn) -> list[list[float]]:
    first = next(iter(columns.values()))
    rows = len(first.codes if isinstance(first, TextColumn) else first)
    again = msgspec.json.decode(msgspec.json.encode(found.encoding), type=Encoding)
    assert again == found.encoding
    matrix: list[list[float]] = again.encode(columns, rows, np.float64).tolist()
    return matrix


def test_numbers_are_scaled_by_the_training_rows_alone() -> None:
    x = floats(1, 3, 100)
    found = fitted(training=2, x=x)
    assert found.encoding.columns == (NumberColumn("x", mean=2.0, scale=1.0, fill=2.0, missing=False),)
    assert encoded(found, x=x) == [[-1.0], [1.0], [98.0]]


def test_missing_numbers_become_the_median_and_an_indicator() -> None:
    x = floats(0, 0, 6, None)
    found = fitted(x=x)
    (column,) = found.encoding.columns
    assert isinstance(column, NumberColumn)
    assert (column.mean, column.fill) == (2.0, 0.0)
    rows = encoded(found, x=x)
    assert [row[1] for row in rows] == [0, 0, 0, 1]
    assert rows[3][0] == rows[0][0]
    assert any("1 missing" in note for note in found.notes)


def test_a_number_missing_only_later_is_filled_without_an_indicator() -> None:
    found = fitted(x=floats(1, 2, 3))
    assert encoded(found, x=floats(None)) == [[0.0]]


def test_categories_get_an_input_each_and_unknown_ones_none() -> None:
    found = fitted(c=text("red", "blue", "red"))
    assert found.encoding.columns == (CategoryColumn("c", ("blue", "red"), other=False, missing=False),)
    assert encoded(found, c=text("red", "green", None, "blue")) == [[0, 1], [0, 0], [0, 0], [1, 0]]


def test_missing_categories_are_a_category_of_their_own() -> None:
    found = fitted(c=text("red", None, "red"))
    assert encoded(found, c=text("red", None, "green")) == [[1, 0], [0, 1], [0, 0]]


def test_rare_categories_share_an_input_with_unknown_ones() -> None:
    common = [f"common {index:02}" for index in range(CATEGORIES_MAX)]
    rare = ["rare 1", "rare 2"]
    found = fitted(c=text(*common, *common, *rare, None))
    assert found.encoding.width == CATEGORIES_MAX + 2
    row_rare, row_unknown, row_missing, row_first = encoded(found, c=text("rare 2", "new", None, common[0]))
    assert row_rare == row_unknown == [0.0] * CATEGORIES_MAX + [1.0, 0.0]
    assert row_missing == [0.0] * CATEGORIES_MAX + [0.0, 1.0]
    assert row_first == [1.0] + [0.0] * (CATEGORIES_MAX + 1)
    assert any("66 categories" in note for note in found.notes)


def test_constant_empty_and_identifier_columns_are_left_out_and_reported() -> None:
    rows = 100
    found = fitted(
        x=floats(*range(rows)),
        constant=floats(*[7] * rows),
        empty=floats(*[None] * rows),
        word=text(*["a"] * rows),
        name=text(*(f"person {row}" for row in range(rows))),
    )
    assert [column.name for column in found.encoding.columns] == ["x"]
    for name in ("constant", "empty", "word", "name"):
        assert any(f"'{name}'" in note and "left out" in note for note in found.notes)


def test_classes_are_sorted_as_numbers_or_as_text() -> None:
    x = floats(1, 2, 3, 4)
    assert fitted(x=x, y=text("10", "9", "9", "1")).encoding.target == ClassTarget("y", ("1", "9", "10"))
    y = text("b", "10", "a", "b")
    found = fitted(x=x, y=y)
    assert found.encoding.target == ClassTarget("y", ("10", "a", "b"))
    assert targets(found, x=x, y=y) == [2, 0, 1, 2]


def test_a_class_that_no_training_row_has_is_reported() -> None:
    found = fitted(training=3, x=floats(1, 2, 3, 4), y=text("a", "b", "a", "c"))
    assert any("1 classes" in note for note in found.notes)


def test_a_number_as_target_is_scaled() -> None:
    y = floats(10, 30, 50)
    found = fitted(training=2, x=floats(1, 2, 3), y=y)
    assert found.encoding.target == NumberTarget("y", mean=20.0, scale=10.0)
    assert targets(found, y=y) == [-1.0, 1.0, 3.0]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"x": floats(1, 1)}, "no column is left"),
        ({"x": floats(1, 2), "y": text("a", "a")}, "one class only"),
        ({"x": floats(1, 2), "y": floats(3, 3)}, "one value only"),
        (
            {"x": floats(*range(CLASSES_MAX + 1)), "y": text(*(str(row) for row in range(CLASSES_MAX + 1)))},
            "regression",
        ),
    ],
)
def test_what_cannot_be_learnt_is_refused(columns: dict[str, Floats | TextColumn], said: str) -> None:
    with pytest.raises(JobError, match=said):
        fitted(None, 3, **columns)


def test_a_wild_number_stays_finite_in_float32() -> None:
    found = fitted(x=floats(1, 2, 3))
    matrix = found.encoding.encode({"x": floats(1e99, -1e99)}, 2, np.float32)
    assert np.isfinite(matrix).all()


VALUES = st.lists(st.floats(-1e50, 1e50) | st.none(), min_size=2, max_size=30)


@given(VALUES, st.randoms())
def test_the_encoding_of_numbers_does_not_depend_on_the_rows_order(
    values: list[float | None], shuffler: object
) -> None:
    present = {value for value in values if value is not None}
    if len(present) < 2:
        return
    shuffled = list(values)
    shuffler.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis types it as object
    try:
        one, other = fitted(x=floats(*values)), fitted(x=floats(*shuffled))
    except JobError:
        return  # so close together that their spread is no number
    assert one.encoding.columns == other.encoding.columns
    matrix = np.array(encoded(one, x=floats(*values)))
    assert np.isfinite(matrix).all()


@given(st.lists(st.sampled_from("abcdefgh") | st.none(), min_size=2, max_size=30))
def test_every_category_of_training_can_be_read_back(values: list[str | None]) -> None:
    if len(set(values)) < 2:
        return
    found = fitted(c=text(*values))
    (column,) = found.encoding.columns
    assert isinstance(column, CategoryColumn)
    names: list[str | None] = [*column.values, *([None] if column.missing else [])]
    for row, value in zip(encoded(found, c=text(*values)), values, strict=True):
        assert sum(row) == 1
        assert names[row.index(1.0)] == value


def test_encodings_of_another_kind_of_column_are_a_mistake_of_ours(tmp_path: Path) -> None:
    found = fitted(x=floats(1, 2))
    with pytest.raises(TypeError, match="'x'"):
        found.encoding.encode({"x": text("a")}, 1, np.float64)
