"""A CSV becomes columns, or a JobError that names the file, the line and what to do."""

from __future__ import annotations

import csv
import gzip
import io
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daisychain.errors import JobError
from daisychain.trainer.jobs.streaming.blocks import Cells, StoredBlocks
from daisychain.trainer.jobs.table_data import MISSING, Table, Wanted, read_table
from daisychain.trainer.jobs.table_rows import NoScratch


def table(tmp_path: Path, data: str | bytes, name: str = "rows.csv", wanted: Wanted | None = None) -> Table:
    path = tmp_path / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return read_table(path, name, wanted or Wanted(), in_memory())


def in_memory() -> StoredBlocks:
    return StoredBlocks(1 << 30, NoScratch("rows.csv"))


def column(found: Table, name: str) -> Cells:
    cells: Cells = np.concatenate([block[name] for _, block in found.blocks.walk([name])])
    return cells


def numbers(found: Table, name: str) -> list[float]:
    assert name not in found.texts
    return [float(value) for value in column(found, name)]


def texts(found: Table, name: str) -> list[str | None]:
    values = found.texts[name]
    assert values is not None
    return [None if code < 0 else values[code] for code in column(found, name).tolist()]


def test_numbers_and_text_are_told_apart(tmp_path: Path) -> None:
    found = table(tmp_path, "a,b,c\n1, x ,1e3\n-2.5,y,\n")
    assert found.blocks.rows == 2
    assert numbers(found, "a") == [1.0, -2.5]
    assert texts(found, "b") == ["x", "y"]
    assert numbers(found, "c")[0] == 1000.0
    assert math.isnan(numbers(found, "c")[1])


def test_a_column_whose_last_value_is_text_is_text_from_the_first(tmp_path: Path) -> None:
    found = table(tmp_path, "a\n" + "1\n" * 5000 + "n.a.\n")
    assert texts(found, "a") == ["1"] * 5000 + ["n.a."]
    assert any("'n.a.', line 5002" in note for note in found.notes)


@pytest.mark.parametrize("word", ["", " ", "NA", "n/a", "NaN", "null", "?", "Nan"])
def test_missing_values_are_missing_in_numbers_and_in_text(tmp_path: Path, word: str) -> None:
    found = table(tmp_path, f"a,b\n1,x\n{word},{word}\n")
    assert math.isnan(numbers(found, "a")[1])
    assert texts(found, "b") == ["x", None]


def test_numbers_out_of_range_are_missing_and_reported(tmp_path: Path) -> None:
    found = table(tmp_path, "a\n1\ninf\n-1e200\n")
    assert [math.isnan(value) for value in numbers(found, "a")] == [False, True, True]
    assert any("2 values are infinite" in note for note in found.notes)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_the_separator_is_seen_in_the_header(tmp_path: Path, separator: str) -> None:
    found = table(tmp_path, f"a{separator}b\n1{separator}2\n")
    assert (numbers(found, "a"), numbers(found, "b")) == ([1.0], [2.0])


def test_quotes_blank_lines_a_byte_order_mark_and_crlf(tmp_path: Path) -> None:
    found = table(tmp_path, '\ufeffa,"b, c"\r\n\r\n"x\r\ny",2\r\n'.encode())
    assert found.header == ("a", "b, c")
    assert texts(found, "a") == ["x\r\ny"]


def test_gzip(tmp_path: Path) -> None:
    found = table(tmp_path, gzip.compress(b"a\n1\n"), "rows.csv.gz")
    assert numbers(found, "a") == [1.0]


def test_ignored_columns_are_not_there_and_text_can_be_asked_for(tmp_path: Path) -> None:
    found = table(tmp_path, "a,b,c\n1,2,x\n", wanted=Wanted(ignore=("c",), as_text=("b",)))
    assert set(found.names) == {"a", "b"}
    assert texts(found, "b") == ["2"]


@pytest.mark.parametrize(
    ("data", "where", "said"),
    [
        (b"", "rows.csv", "empty"),
        (b"\n\n", "rows.csv", "empty"),
        (b"a,b\n1,2\n3\n", "rows.csv:3", "1 cells where the header has 2"),
        (b"a,b\n1,2\n3,4,5\n", "rows.csv:3", "3 cells"),
        (b"a,\n1,2\n", "rows.csv:1", "column 2 has no name"),
        (b"a,a\n1,2\n", "rows.csv:1", "'a' is there twice"),
        (b'a,b\n"1,2\n3,4\n', "rows.csv:3", "not CSV"),
        (b"a,b\n\xff\xfe,2\n", "rows.csv", "not UTF-8"),
    ],
)
def test_a_broken_file_is_named_with_its_line(tmp_path: Path, data: bytes, where: str, said: str) -> None:
    with pytest.raises(JobError, match=said) as caught:
        table(tmp_path, data)
    assert caught.value.where == where


def test_gzip_that_is_none_or_torn_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(b"a,b\n" + b"1,2\n" * 10000)
    for data in (b"a\n1\n", whole[: len(whole) // 2]):
        with pytest.raises(JobError, match=r"rows\.csv\.gz: cannot be read"):
            table(tmp_path, data, "rows.csv.gz")


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"absent\.csv: cannot be read"):
        read_table(tmp_path / "absent.csv", "absent.csv", Wanted(), in_memory())


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=20))
def test_any_text_comes_back_stripped_whatever_quoting_it_needs(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(("a", "b"))
    writer.writerows(rows)
    found = table(tmp_path_factory.mktemp("table"), out.getvalue(), wanted=Wanted(as_text=("a", "b")))
    for name, column in zip("ab", zip(*rows, strict=True), strict=True):
        expected = [cell.strip() for cell in column]
        assert texts(found, name) == [None if cell.lower() in MISSING else cell for cell in expected]


@given(st.lists(st.floats(-1e99, 1e99) | st.none(), min_size=1, max_size=20))
def test_any_number_comes_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, values: list[float | None]
) -> None:
    lines = "".join(f"{'' if value is None else repr(value)},0\n" for value in values)
    found = table(tmp_path_factory.mktemp("table"), "a,b\n" + lines)
    assert [None if math.isnan(value) else value for value in numbers(found, "a")] == values


@given(st.binary(max_size=100))
def test_any_bytes_are_a_table_or_a_job_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    for name in ("rows.csv", "rows.csv.gz"):
        try:
            table(tmp_path_factory.mktemp("table"), data, name)
        except JobError as error:
            assert error.where.startswith(name)
