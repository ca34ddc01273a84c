"""A CSV file into columns: numbers as float64 with NaN for what is missing, text as codes.

Comma, semicolon or tab (whichever the header line holds most of), UTF-8, optionally gzip; the header
names the columns. A column is numeric when every value in it is a number or missing.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from daisychain.errors import JobError
from daisychain.trainer.jobs.streaming.blocks import (
    Blocks,
    Cells,
    Codes,
    Floats,
    StoredBlocks,
    block_rows,
)

MISSING = frozenset({"", "na", "n/a", "nan", "null", "?"})
"""What counts as a missing value, whatever the case and the blanks around it."""

NUMBER_MAX = 1e100
"""Largest size of a number that is taken; beyond it (and infinities) a value counts as missing, because
its square leaves the range of float64."""

COLUMNS_MAX = 65_536
"""Most columns: this stops a file that is no table (one giant line) before memory does."""

VALUES_MAX, VALUES_MAX_BYTES = 1 << 18, 16 << 20
"""Most different values of a text column, and most characters in them: a column with more names rows or holds
prose, and keeping all its values would take the memory that a table larger than memory has not."""


@dataclass(frozen=True, slots=True)
class TextColumn:
    """Text by code: ``values[codes[row]]``; code -1 is missing. Values stand in order of appearance."""

    codes: Codes
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted of a table.

    Attributes:
        ignore: columns left out.
        as_text: columns that are text, whatever they hold.
        target: rows without a value in it are left out; None = all rows stay.
    """

    ignore: tuple[str, ...] = ()
    as_text: tuple[str, ...] = ()
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """The columns and rows that were asked for, in the file's order.

    Attributes:
        header: all names in the file.
        names: of the columns that are here.
        texts: the values of each text column; the others hold numbers. None: more than `VALUES_MAX`.
        blocks: the rows.
        lost: how many rows had no target.
        notes: what was noticed.
    """

    header: tuple[str, ...]
    names: tuple[str, ...]
    texts: Mapping[str, tuple[str, ...] | None]
    blocks: Blocks
    lost: int = 0
    notes: tuple[str, ...] = ()


class NumberBuilder:
    """Turns the cells of one column into numbers, block by block."""

    def __init__(self) -> None:
        self.texts = 0
        self.first_text = ("", 0)
        self.unusable = 0

    def take(self, cells: Sequence[str], lines: Sequence[int]) -> Floats:
        """Return the next cells as numbers; what is no number counts in ``texts`` and becomes missing.

        ``lines``: where each cell's row ended in the file.
        """
        try:
            values = np.fromiter(map(float, cells), np.float64, len(cells))
        except ValueError:
            values = np.fromiter(
                (self._number(cell, line) for cell, line in zip(cells, lines, strict=True)),
                np.float64,
                len(cells),
            )
        wild = np.abs(values) > NUMBER_MAX
        if wild.any():
            values[wild] = math.nan
            self.unusable += int(wild.sum())
        return values

    def _number(self, cell: str, line: int) -> float:
        try:
            return float(cell)
        except ValueError:
            text = cell.strip()
            if text.lower() not in MISSING:
                if not self.texts:
                    self.first_text = (text, line)
                self.texts += 1
            return math.nan


class TextBuilder:
    """Turns the cells of one column into codes of its values, block by block.

    Attributes:
        numbers: how many cells held a usable number.
        texts: how many held neither a number nor one of the words for "missing".
        first_text: the first of those, and its line.
    """

    def __init__(self) -> None:
        self._code_of: dict[str, int] = {}
        self._values: list[str] = []
        self._is_text: list[bool] = []
        self._is_number: list[bool] = []
        self._bytes = 0
        self._overflowed = False
        self.numbers = 0
        self.texts = 0
        self.first_text = ("", 0)

    @property
    def values(self) -> tuple[str, ...] | None:
        """The values in order of appearance; None when they were too many to be kept."""
        return None if self._overflowed else tuple(self._values)

    def take(self, cells: Sequence[str], lines: Sequence[int]) -> Codes:
        """Return the next cells as codes; all missing once there were too many values."""
        if self._overflowed:
            return np.full(len(cells), -1, dtype=np.int32)
        codes = np.empty(len(cells), dtype=np.int32)
        known = self._code_of
        for row, cell in enumerate(cells):
            text = cell.strip()
            code = known.get(text)
            codes[row] = self._new(text, lines[row]) if code is None else code
        there = codes[codes >= 0]
        self.texts += int(np.array(self._is_text, dtype=np.bool_)[there].sum())
        self.numbers += int(np.array(self._is_number, dtype=np.bool_)[there].sum())
        if len(self._values) > VALUES_MAX or self._bytes > VALUES_MAX_BYTES:
            self._overflowed = True
            self._code_of, self._values = {}, []
        return codes

    def _new(self, text: str, line: int) -> int:
        if text.lower() in MISSING:
            self._code_of[text] = -1
            return -1
        try:
            number: float | None = float(text)
        except ValueError:
            number = None
            if self.first_text == ("", 0):
                self.first_text = (text, line)
        self._is_text.append(number is None)
        self._is_number.append(number is not None and abs(number) <= NUMBER_MAX)
        self._values.append(text)
        self._bytes += len(text)
        code = self._code_of[text] = len(self._values) - 1
        return code


class CsvRows:
    """The rows of an open CSV file, each as wide as the header.

    Iterating raises `JobError` with the line for a row of another width and for text that is no CSV.
    """

    def __init__(self, stream: io.TextIOBase, where: str) -> None:
        self._where = where
        with _readable(where):
            first = stream.readline()
        if not first.strip():
            raise JobError(where, "the file is empty", "It needs a header line with the columns' names.")
        self.delimiter = max(",;\t", key=first.count)
        self._reader = csv.reader(_chained(first, stream), delimiter=self.delimiter, strict=True)
        with _readable(where):
            self.header = tuple(name.strip() for name in self._next() or [])
        self._check_header()

    @property
    def line(self) -> int:
        """The line (from 1) on which the last row ended."""
        return self._reader.line_num

    def __iter__(self) -> Iterator[list[str]]:
        width = len(self.header)
        while (row := self._next()) is not None:
            if not row:
                continue  # a blank line
            if len(row) != width:
                raise JobError(
                    f"{self._where}:{self.line}",
                    f"{len(row)} cells where the header has {width}",
                    "Give every row one cell for each column; put text that holds the separator in quotes.",
                )
            yield row

    def _next(self) -> list[str] | None:
        with _readable(self._where, self):
            return next(self._reader, None)

    def _check_header(self) -> None:
        if len(self.header) > COLUMNS_MAX:
            raise JobError(self._where, f"{len(self.header)} columns, more than the {COLUMNS_MAX} allowed")
        seen: set[str] = set()
        for number, name in enumerate(self.header, start=1):
            if not name:
                raise JobError(
                    f"{self._where}:1",
                    f"column {number} has no name",
                    "Name it in the header line, or remove it (it may be a row number).",
                )
            if name in seen:
                raise JobError(
                    f"{self._where}:1", f"the column {name!r} is there twice", "Rename one of them."
                )
            seen.add(name)


@contextmanager
def open_csv(path: Path, where: str) -> Iterator[CsvRows]:
    """Open a CSV (gzip if its name ends in .gz) for reading; ``where`` names it in errors (`JobError`)."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise JobError(where, f"cannot be read: {error.strerror or error}", "Check its name.") from None
    with raw:
        plain = gzip.GzipFile(fileobj=raw) if path.name.endswith(".gz") else raw
        with io.TextIOWrapper(plain, encoding="utf-8-sig", newline="") as stream:
            yield CsvRows(stream, where)


def read_table(path: Path, where: str, wanted: Wanted, store: StoredBlocks) -> Table:
    """Read the table in ``path`` into ``store``; ``where`` names it in errors.

    Reads the file once; what was read is read again when a column turns out to hold text. Raises
    `JobError` for whatever is wrong with the file.
    """
    text: frozenset[str] = frozenset(wanted.as_text)
    while True:
        reading = _Reading(wanted, text, store)
        with open_csv(path, where) as rows:
            if reading.all(rows):
                return reading.table(rows.header)
        text = reading.text
        store.clear()


class _Reading:
    """One pass over a CSV's rows, ended early when a column that was taken for numbers holds text."""

    def __init__(self, wanted: Wanted, text: frozenset[str], store: StoredBlocks) -> None:
        self._wanted = wanted
        self._store = store
        self._builders: dict[str, NumberBuilder | TextBuilder] = {}
        self._lost = 0
        self.text = text

    def all(self, rows: CsvRows) -> bool:
        """Take all rows; False when they are to be read again with other columns as `text`."""
        ignore = frozenset(self._wanted.ignore)
        self._builders = {
            name: TextBuilder() if name in self.text else NumberBuilder()
            for name in rows.header
            if name not in ignore
        }
        places = [rows.header.index(name) for name in self._builders]
        numbered = ((row, rows.line) for row in rows)
        while some := list(islice(numbered, block_rows(len(rows.header)))):
            lines = [line for _, line in some]
            by_column = list(zip(*(row for row, _ in some), strict=True))
            block: dict[str, Cells] = {
                name: builder.take(by_column[place], lines)
                for place, (name, builder) in zip(places, self._builders.items(), strict=True)
            }
            found = {
                name
                for name, builder in self._builders.items()
                if isinstance(builder, NumberBuilder) and builder.texts
            }
            if found:
                self.text |= found
                return False
            self._keep(block)
        return True

    def _keep(self, block: dict[str, Cells]) -> None:
        block, lost = keep_rows(block, self._wanted.target)
        self._lost += lost
        self._store.append(block)

    def table(self, header: tuple[str, ...]) -> Table:
        """Return what was read."""
        notes = []
        for name, builder in self._builders.items():
            match builder:
                case TextBuilder() if name not in self._wanted.as_text and builder.numbers >= builder.texts:
                    value, line = builder.first_text
                    notes.append(
                        f"column {name!r}: {builder.texts} values are no numbers (the first: {value[:40]!r},"
                        f" line {line}), so all its values are taken as categories"
                    )
                case NumberBuilder() if builder.unusable:
                    notes.append(
                        f"column {name!r}: {builder.unusable} values are infinite or beyond {NUMBER_MAX:g}:"
                        " taken as missing"
                    )
                case _:
                    pass
        texts = {
            name: builder.values
            for name, builder in self._builders.items()
            if isinstance(builder, TextBuilder)
        }
        return Table(header, tuple(self._builders), texts, self._store, self._lost, tuple(notes))


def keep_rows(block: dict[str, Cells], target: str | None) -> tuple[dict[str, Cells], int]:
    """Return the rows of ``block`` that have a ``target`` (None: all), and how many have none."""
    goal = None if target is None else block.get(target)
    if goal is None:
        return block, 0
    kept = rows_with_target(goal)
    lost = len(kept) - int(kept.sum())
    return ({name: cells[kept] for name, cells in block.items()} if lost else block), lost


def rows_with_target(cells: Cells) -> npt.NDArray[np.bool_]:
    """Return which rows of a block have a target."""
    return ~np.isnan(cells) if cells.dtype.kind == "f" else cells >= 0


def _chained(first: str, stream: io.TextIOBase) -> Iterator[str]:
    yield first
    yield from stream


@contextmanager
def _readable(where: str, rows: CsvRows | None = None) -> Iterator[None]:
    """Turn what reading a file may raise into a `JobError`."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise JobError(where, f"not UTF-8 text: {error.reason}", "Save it as CSV in UTF-8.") from None
    except csv.Error as error:
        place = where if rows is None else f"{where}:{rows.line}"
        raise JobError(place, f"not CSV: {error}", "Check the quotes on and after this line.") from None
    except (OSError, EOFError, zlib.error) as error:
        raise JobError(where, f"cannot be read: {error}", "Check that the file is whole.") from None
