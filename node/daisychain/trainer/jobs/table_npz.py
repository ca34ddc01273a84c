"""An .npz into columns: streamed block by block, compressed or not; never unpickled.

Each member is a column (one dimension), or as many as it is wide (two: ``name.0``, ``name.1``, ...).
Every header is read, and held against the size of its member, before anything is allocated.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from daisychain.errors import JobError
from daisychain.trainer.jobs.streaming.blocks import Cells, Floats, Singles, StoredBlocks, block_rows
from daisychain.trainer.jobs.table_data import (
    COLUMNS_MAX,
    NUMBER_MAX,
    Table,
    TextBuilder,
    Wanted,
    keep_rows,
)

KINDS = {"f": "numbers", "i": "numbers", "u": "numbers", "b": "numbers", "U": "text", "S": "text"}
"""What an array's elements may be; objects would have to be unpickled."""

TEXT_MAX_BYTES = 4096
"""Longest element of a text array: a block of them is held in memory."""


@dataclass(frozen=True, slots=True)
class _Member:
    """One array of the file: its header, checked."""

    name: str
    dtype: np.dtype[Any]
    rows: int
    width: int | None

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""
        if self.width is None:
            return (self.name,)
        return tuple(f"{self.name}.{number}" for number in range(self.width))

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * (1 if self.width is None else self.width)


def read_npz(path: Path, where: str, wanted: Wanted, store: StoredBlocks) -> Table:
    """Read the table in ``path`` into ``store``; ``where`` names it in errors.

    Raises `JobError` for whatever is wrong with the file.
    """
    with _readable(where), zipfile.ZipFile(path) as archive:
        members = _members(archive, where)
        header = tuple(name for member in members for name in member.columns)
        _check(header, members, where)
        reading = _Reading(members, wanted)
        with ExitStack() as opened:
            streams = {
                member.name: opened.enter_context(archive.open(f"{member.name}.npy")) for member in members
            }
            for member in members:
                _read_header(streams[member.name], f"{where}: {member.name}")
            rows, step = members[0].rows, block_rows(len(header))
            for start in range(0, rows, step):
                block = reading.take(streams, min(step, rows - start), start, where)
                block, lost = keep_rows(block, wanted.target)
                reading.lost += lost
                store.append(block)
        return reading.table(header, store)


class _Reading:
    """The columns that are wanted, and what was noticed in them so far."""

    def __init__(self, members: list[_Member], wanted: Wanted) -> None:
        self._members = members
        self._ignore = frozenset(wanted.ignore)
        self._text = {
            name: TextBuilder()
            for member in members
            for name in member.columns
            if name not in self._ignore and (KINDS[member.dtype.kind] == "text" or name in wanted.as_text)
        }
        self._unusable: dict[str, int] = {}
        self.lost = 0

    def take(self, streams: dict[str, IO[bytes]], rows: int, start: int, where: str) -> dict[str, Cells]:
        """Return the next ``rows`` rows of every wanted column."""
        block: dict[str, Cells] = {}
        for member in self._members:
            data = _exactly(streams[member.name], rows * member.row_bytes, f"{where}: {member.name}")
            array = np.frombuffer(data, dtype=member.dtype).reshape(rows, member.width or 1)
            for column, name in enumerate(member.columns):
                if name in self._ignore:
                    continue
                builder, values = self._text.get(name), array[:, column]
                if builder is not None:
                    block[name] = builder.take(_as_text(values), range(start, start + rows))
                else:
                    block[name] = self._numbers(name, values)
        return block

    def table(self, header: tuple[str, ...], store: StoredBlocks) -> Table:
        """Return what was read."""
        notes = tuple(
            f"column {name!r}: {count} values are infinite or beyond {NUMBER_MAX:g}: taken as missing"
            for name, count in self._unusable.items()
        )
        names = tuple(name for name in header if name not in self._ignore)
        texts = {name: builder.values for name, builder in self._text.items()}
        return Table(header, names, texts, store, self.lost, notes)

    def _numbers(self, name: str, values: npt.NDArray[Any]) -> Cells:
        """Return numbers; those of four bytes stay so until they are used: half the disk."""
        if values.dtype.kind == "f" and values.dtype.itemsize <= 4:
            numbers: Floats | Singles = values.astype(np.float32)
            wild = np.isinf(numbers)
        else:
            numbers = values.astype(np.float64)
            wild = np.abs(numbers) > NUMBER_MAX
        if wild.any():
            numbers[wild] = math.nan
            self._unusable[name] = self._unusable.get(name, 0) + int(wild.sum())
        return numbers


def _members(archive: zipfile.ZipFile, where: str) -> list[_Member]:
    members = []
    infos = archive.infolist()
    if len(infos) > COLUMNS_MAX:
        raise JobError(where, f"{len(infos)} arrays, more than the {COLUMNS_MAX} allowed")
    for info in infos:
        name, at = info.filename.removesuffix(".npy"), f"{where}: {info.filename}"
        if name == info.filename:
            raise JobError(at, "is no .npy array", "Save the file with numpy.savez.")
        with archive.open(info) as stream:
            shape, fortran, dtype = _read_header(stream, at)
            header_bytes = stream.tell()
        if dtype.kind not in KINDS or dtype.fields is not None or dtype.subdtype is not None:
            raise JobError(
                at, f"holds elements of type {dtype}", "Save numbers or text; objects are never unpickled."
            )
        if KINDS[dtype.kind] == "text" and not 0 < dtype.itemsize <= TEXT_MAX_BYTES:
            raise JobError(at, f"its texts take {dtype.itemsize} bytes, {TEXT_MAX_BYTES} are allowed")
        if len(shape) not in (1, 2) or (len(shape) == 2 and not 0 < shape[1] <= COLUMNS_MAX):
            raise JobError(at, f"its shape is {shape}", "Save one entry a row, or one row of columns each.")
        if fortran and len(shape) == 2:
            raise JobError(
                at, "is stored column by column (Fortran order)", "Save numpy.ascontiguousarray of it."
            )
        told = math.prod(shape) * dtype.itemsize
        if told != info.file_size - header_bytes:
            raise JobError(
                at,
                f"its header tells {told} bytes, but it holds {info.file_size - header_bytes}",
                "Check that the file is whole.",
            )
        members.append(_Member(name, dtype, shape[0], shape[1] if len(shape) == 2 else None))
    return members


def _read_header(stream: IO[bytes], at: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, order and type, the stream being at the first element afterwards.

    Version 1.0 alone: its headers are under 64 KiB, those of later ones up to 4 GiB.
    """
    try:
        version = np.lib.format.read_magic(stream)  # type: ignore[no-untyped-call]
        if version != (1, 0):
            raise ValueError(f"its version is {version}")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)  # type: ignore[no-untyped-call]
        return shape, bool(fortran), dtype
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError, OverflowError) as error:
        raise JobError(at, f"its header cannot be read: {error}", "Save it with numpy.savez.") from None


def _check(header: tuple[str, ...], members: list[_Member], where: str) -> None:
    if not members:
        raise JobError(where, "there are no arrays in it", "Save one for each column.")
    if len(header) > COLUMNS_MAX:
        raise JobError(where, f"{len(header)} columns, more than the {COLUMNS_MAX} allowed")
    twice = (
        next((name for name in header if header.count(name) > 1), None)
        if len(set(header)) < len(header)
        else None
    )
    if twice is not None:
        raise JobError(where, f"the column {twice!r} is there twice", "Rename one of them.")
    for member in members:
        if member.rows != members[0].rows:
            raise JobError(
                where,
                f"{members[0].name!r} has {members[0].rows} rows, but {member.name!r} {member.rows}",
                "Give each array one entry a row.",
            )


def _exactly(stream: IO[bytes], size: int, at: str) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise JobError(at, "ends before its last row", "Check that the file is whole.")
    return data


def _as_text(values: npt.NDArray[Any]) -> list[str]:
    """Return each element as a CSV would have it: whole numbers without a point."""
    if values.dtype.kind == "S":
        return [value.decode("utf-8", "replace") for value in values.tolist()]
    if values.dtype.kind == "f":
        return [repr(int(value)) if value.is_integer() else repr(value) for value in values.tolist()]
    return [str(value) for value in values.tolist()]


@contextmanager
def _readable(where: str) -> Iterator[None]:
    """Turn what reading an archive may raise into a `JobError`."""
    try:
        yield
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        raise JobError(where, f"cannot be read: {error}", "Check that the file is whole.") from None
