"""A table's file becomes rows to train on: read, fitted, encoded and split, in memory or in the cache.

Both ways walk the same blocks and compute the same bits; only where the rows are put differs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn, Protocol

import numpy as np
import numpy.typing as npt
import torch

from daisychain.core.job_spec import JobSpec, TableModel, Task
from daisychain.errors import JobError
from daisychain.trainer.jobs.samples import Expect
from daisychain.trainer.jobs.streaming.arrays import ArrayWriter, MappedArray
from daisychain.trainer.jobs.streaming.blocks import StoredBlocks
from daisychain.trainer.jobs.streaming.cache import Cache, Card, Conversion, Entry, PartCard
from daisychain.trainer.jobs.streaming.held_out import HeldOut
from daisychain.trainer.jobs.streaming.room import DataRoom
from daisychain.trainer.jobs.streaming.source import SourceFile
from daisychain.trainer.jobs.table_data import Table, Wanted, read_table
from daisychain.trainer.jobs.table_encoding import (
    ClassTarget,
    Encoder,
    Encoding,
    Matrix,
    Targets,
    check_target,
    fit,
)
from daisychain.trainer.jobs.table_npz import read_npz

NPZ = ".npz"
"""How the name of a table of numpy arrays ends; all others are CSV."""


@dataclass(frozen=True, slots=True)
class Part:
    """One split's rows.

    Attributes:
        inputs, targets: one entry a row; in memory, or mapped.
        expect: has the disk begin to read rows; None where nothing is gained by it.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    expect: Expect | None = None


@dataclass(frozen=True, slots=True)
class TableRows:
    """A table ready for training.

    Attributes:
        encoding: what its inputs and outputs stand for.
        train, held_out: its rows; nothing held out: None.
        notes: what was noticed.
        entry: what they are mapped from, held; None in memory.
    """

    encoding: Encoding
    train: Part
    held_out: Part | None
    notes: tuple[str, ...]
    entry: Entry | None = None


def load_rows(spec: JobSpec, model: TableModel, data: Path, room: DataRoom) -> TableRows:
    """Return the rows of ``data`` in the job's dtype; raises `JobError` for whatever is wrong with them."""
    where = model.data
    conversion = Conversion(
        model.target, model.task.value, tuple(sorted(model.ignore)), spec.validation, spec.seed, spec.dtype
    )
    cache = None if room.cache_folder is None else Cache(room.cache_folder, room.cache_max_bytes, where)
    try:
        entry = None if cache is None else cache.find(data, conversion)
        if entry is not None:
            return _mapped(entry, room)
        source = SourceFile.of(data)
        store = StoredBlocks(room.memory_bytes, NoScratch(where) if cache is None else cache.budget)
        with contextlib.closing(store):
            table = _read(data, model, store)
            rows = _Conversion(table, spec, model)
            if rows.size_bytes <= room.memory_bytes:
                return rows.in_memory()
            if cache is None:
                _refuse_memory(where, rows.size_bytes, room.memory_bytes)
            return _mapped(rows.into(cache, conversion, data, source), room)
    except OSError as error:
        raise JobError(where, f"cannot be read: {error.strerror or error}", "Check the disk.") from None
    finally:
        if cache is not None:
            cache.budget.give_back()


class NoScratch:
    """No room on any disk: a table that does not fit into memory is refused."""

    def __init__(self, where: str) -> None:
        self._where = where

    def open(self) -> BinaryIO:
        """Raise `JobError`."""
        raise JobError(self._where, "its rows do not fit into memory", "Use a table with fewer rows.")

    def take(self, size_bytes: int) -> None:
        """Raise `JobError`."""
        self.open()


class _Sink(Protocol):
    """Where one array goes."""

    def append(self, rows: npt.NDArray[np.generic]) -> None: ...


class _MemorySink:
    """An array in memory, filled in order."""

    def __init__(self, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> None:
        self._array = np.empty(shape, dtype=dtype)
        self._filled = 0

    def append(self, rows: npt.NDArray[np.generic]) -> None:
        self._array[self._filled : self._filled + len(rows)] = rows
        self._filled += len(rows)

    @property
    def tensor(self) -> torch.Tensor:
        return torch.from_numpy(self._array)


class _Conversion:
    """A table that was read and fitted, to be encoded into sinks."""

    def __init__(self, table: Table, spec: JobSpec, model: TableModel) -> None:
        self._table = table
        self._held_out = HeldOut(table.blocks.rows, spec.validation, spec.seed)
        fitted = fit(table, model.target, self._held_out.training, model.data)
        self._encoding = fitted.encoding
        self._dtype = np.dtype(np.float64 if spec.dtype == "float64" else np.float32)
        classes = isinstance(fitted.encoding.target, ClassTarget)
        self._target_dtype = np.dtype(np.int64) if classes else self._dtype
        self._notes = _notes(table, self._held_out, fitted.notes)

    @property
    def size_bytes(self) -> int:
        """What the encoded rows take."""
        a_row = self._encoding.width * self._dtype.itemsize + self._target_dtype.itemsize
        return self._table.blocks.rows * a_row

    def in_memory(self) -> TableRows:
        """Encode into memory."""
        parts = {}
        for name, rows in self._parts().items():
            parts[name] = (
                _MemorySink(self._dtype, (rows, self._encoding.width)),
                _MemorySink(self._target_dtype, (rows,)),
            )
        self._encode(parts)
        made = {name: Part(inputs.tensor, targets.tensor) for name, (inputs, targets) in parts.items()}
        return TableRows(self._encoding, made["train"], made.get("held_out"), self._notes)

    def into(self, cache: Cache, conversion: Conversion, data: Path, source: SourceFile) -> Entry:
        """Encode into an entry of ``cache``; raises `JobError` when there is no room."""
        cache.budget.make_room(self.size_bytes)
        with cache.staged() as folder, contextlib.ExitStack() as opened:
            parts = {}
            for name, rows in self._parts().items():
                parts[name] = (
                    ArrayWriter(folder / f"{name}.inputs", self._dtype, (rows, self._encoding.width)),
                    ArrayWriter(folder / f"{name}.targets", self._target_dtype, (rows,)),
                )
                for writer in parts[name]:
                    opened.callback(writer.close)
            self._encode(parts)
            cards = {
                name: PartCard(inputs.finish(), targets.finish()) for name, (inputs, targets) in parts.items()
            }
            digest = source.digest(data)
            if SourceFile.of(data) != source:
                raise JobError(
                    data.name, "changed while it was read", "Submit the job again when it is at rest."
                )
            card = Card(
                conversion=conversion,
                source=source,
                digest=digest,
                encoding=self._encoding,
                rows=self._table.blocks.rows,
                train=cards["train"],
                held_out=cards.get("held_out"),
                notes=self._notes,
            )
            return cache.place(folder, card)

    def _parts(self) -> dict[str, int]:
        parts = {"train": self._table.blocks.rows - self._held_out.count, "held_out": self._held_out.count}
        return {name: rows for name, rows in parts.items() if rows}

    def _encode(self, parts: Mapping[str, tuple[_Sink, _Sink]]) -> None:
        for held_out, inputs, targets in self._pieces():
            for name, (input_sink, target_sink) in parts.items():
                rows = held_out if name == "held_out" else ~held_out
                input_sink.append(inputs if rows.all() else inputs[rows])
                target_sink.append(targets if rows.all() else targets[rows])

    def _pieces(self) -> Iterator[tuple[npt.NDArray[np.bool_], Matrix, Targets]]:
        encoder = Encoder(self._encoding, self._table.texts)
        names = [column.name for column in self._encoding.columns] + [self._encoding.target.name]
        for start, block in self._table.blocks.walk(names):
            targets = encoder.targets(block)
            stop = start + len(targets)
            held_out = self._held_out.mask(start, stop)
            yield (
                held_out,
                encoder.inputs(block, len(targets), self._dtype),
                targets.astype(self._target_dtype),
            )


def _read(data: Path, model: TableModel, store: StoredBlocks) -> Table:
    """Return the rows that have a target."""
    where, classification = model.data, model.task is Task.CLASSIFICATION
    wanted = Wanted(model.ignore, (model.target,) if classification else (), model.target)
    read = read_npz if model.data.lower().endswith(NPZ) else read_table
    table = read(data, where, wanted, store)
    check_target(table, model.task, model.target, where)
    unknown = [name for name in model.ignore if name not in table.header]
    if unknown:
        raise JobError("job.yaml: ignore", f"{where} has no column {unknown[0]!r}", "Correct its name.")
    if table.blocks.rows + table.lost == 0:
        raise JobError(where, "there are no rows under the header", "Add the data.")
    if table.blocks.rows == 0:
        raise JobError(where, f"no row has a value in {model.target!r}, the target", "Add them.")
    return table


def _mapped(entry: Entry, room: DataRoom) -> TableRows:
    card, folder = entry.card, entry.folder
    total = sum(array.size_bytes for array in card.arrays)

    def part(files: PartCard) -> Part:
        inputs = MappedArray(folder / files.inputs.name, files.inputs)
        targets = MappedArray(folder / files.targets.name, files.targets)
        stays = total < room.free_bytes // 2
        return Part(inputs.tensor, targets.tensor, None if stays else inputs.expect)

    held_out = None if card.held_out is None else part(card.held_out)
    return TableRows(card.encoding, part(card.train), held_out, card.notes, entry)


def _refuse_memory(where: str, size_bytes: int, memory_bytes: int) -> NoReturn:
    raise JobError(
        where,
        f"its rows take {size_bytes >> 20} MiB, more than the {memory_bytes >> 20} allowed in memory",
        "Leave columns out with 'ignore', or use fewer rows.",
    )


def _notes(table: Table, held_out: HeldOut, fitted: tuple[str, ...]) -> tuple[str, ...]:
    rows, lost = table.blocks.rows, table.lost
    split = f"{rows} rows: {rows - held_out.count} train, {held_out.count} are held out"
    kept = (f"{lost} of {rows + lost} rows have no target: left out",) if lost else ()
    return (split, *kept, *table.notes, *fitted)
