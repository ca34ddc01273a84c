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
from array import array
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from daisychain.errors import JobError

MISSING = frozenset({"", "na", "n/a", "nan", "null", "?"})
"""What counts as a missing value, whatever the case and the blanks around it."""

NUMBER_MAX = 1e100
"""Largest size of a number that is taken; beyond it (and infinities) a value counts as missing, because
its square leaves the range of float64."""

COLUMNS_MAX = 65_536
"""Most columns: this stops a file that is no table (one giant line) before memory does."""

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TextColumn:
    """Text by code: ``values[codes[row]]``; code -1 is missing. Values stand in order of appearance."""

    codes: Codes
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """The columns that were asked for, in the file's order.

    Attributes:
        header: all names in the file.
        rows: the number of data rows.
        columns: by name.
        notes: what was noticed.
    """

    header: tuple[str, ...]
    rows: int
    columns: dict[str, Floats | TextColumn]
    notes: tuple[str, ...]


class NumberBuilder:
    """Collects one column of numbers."""

    def __init__(self) -> None:
        self._values = array("d")
        self.texts = 0
        self.first_text = ("", 0)
        self.unusable = 0

    def add(self, cell: str, line: int) -> None:
        """Take the next cell; what is no number counts in ``texts`` and is kept as missing."""
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
            text = cell.strip()
            if text.lower() not in MISSING:
                if not self.texts:
                    self.first_text = (text, line)
                self.texts += 1
        if not -NUMBER_MAX <= value <= NUMBER_MAX and not math.isnan(value):
            value = math.nan
            self.unusable += 1
        self._values.append(value)

    def column(self) -> Floats:
        """Return what was collected."""
        return np.array(self._values, dtype=np.float64)

    @property
    def numbers(self) -> int:
        """How many cells held a usable number."""
        return sum(not math.isnan(value) for value in self._values)


class TextBuilder:
    """Collects one column of text."""

    def __init__(self) -> None:
        self._codes = array("q")
        self._code_of: dict[str, int] = {}
        self._values: list[str] = []

    def add(self, cell: str, line: int) -> None:
        """Take the next cell."""
        text = cell.strip()
        code = self._code_of.get(text)
        if code is None:
            code = -1
            if text.lower() not in MISSING:
                code = len(self._values)
                self._values.append(text)
            self._code_of[text] = code
        self._codes.append(code)

    def column(self) -> TextColumn:
        """Return what was collected."""
        return TextColumn(np.array(self._codes, dtype=np.int64), tuple(self._values))


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


def read_table(path: Path, where: str, ignore: Collection[str] = (), as_text: Collection[str] = ()) -> Table:
    """Return the table in ``path``, without the columns in ``ignore``; those in ``as_text`` are text.

    Reads the file once, or twice when a column turns out to hold text. Raises `JobError` for whatever
    is wrong with the file.
    """
    notes: list[str] = []
    header, builders = _read(path, where, frozenset(ignore), frozenset(as_text))
    text = set(as_text)
    for name, builder in builders.items():
        if isinstance(builder, NumberBuilder) and builder.texts:
            text.add(name)
            if builder.numbers >= builder.texts:
                value, line = builder.first_text
                notes.append(
                    f"column {name!r}: {builder.texts} values are no numbers (the first: {value[:40]!r},"
                    f" line {line}), so all its values are taken as categories"
                )
    if len(text) > len(set(as_text)):
        header, builders = _read(path, where, frozenset(ignore), frozenset(text))
    for name, builder in builders.items():
        if isinstance(builder, NumberBuilder) and builder.unusable:
            notes.append(
                f"column {name!r}: {builder.unusable} values are infinite or beyond {NUMBER_MAX:g}:"
                " taken as missing"
            )
    columns = {name: builder.column() for name, builder in builders.items()}
    rows = max((_length(column) for column in columns.values()), default=0)
    return Table(header, rows, columns, tuple(notes))


def _length(column: Floats | TextColumn) -> int:
    return len(column.codes if isinstance(column, TextColumn) else column)


def _read(
    path: Path, where: str, ignore: frozenset[str], text: frozenset[str]
) -> tuple[tuple[str, ...], dict[str, NumberBuilder | TextBuilder]]:
    with open_csv(path, where) as rows:
        builders: dict[str, NumberBuilder | TextBuilder] = {
            name: TextBuilder() if name in text else NumberBuilder()
            for name in rows.header
            if name not in ignore
        }
        places = [(rows.header.index(name), builder) for name, builder in builders.items()]
        for row in rows:
            line = rows.line
            for place, builder in places:
                builder.add(row[place], line)
        return rows.header, builders


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
