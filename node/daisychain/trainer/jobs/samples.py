"""Splits of data addressed by sample number: whole columns (fast), or the user's data set item by item.

Both make `CountedBatch`es: the loop hands them to `LoadedJob.loss` and ``metrics`` unopened, and
those know exactly how many samples they hold, whatever the user's collating made of them.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from daisychain.trainer.jobs.streaming.arrays import read_only_tensor


@dataclass(frozen=True, slots=True)
class CountedBatch:
    """Collated samples as the user's functions take them, and how many they are."""

    data: Any
    samples: int


Expect = Callable[[npt.NDArray[np.int64]], None]
"""Is told which rows are taken next."""


class ColumnSamples:
    """Samples that are rows of tensors of equal length: a batch is an index into each."""

    def __init__(
        self, columns: Any, device: torch.device, dtype: torch.dtype, expect: Expect | None = None
    ) -> None:
        """``columns``: a tensor, or a tuple or dict of them, sample by sample along the first axis.

        Arrays that are mapped from a file stay there, and only a batch's rows are turned into ``dtype``.
        """
        self._columns = _mapped_kept(columns, dtype)
        self._expect = expect
        self._device = device
        self._dtype = dtype
        self._length = len(next(_leaves(self._columns)))

    def __len__(self) -> int:
        return self._length

    def batch(self, indices: Sequence[int], epoch: int) -> CountedBatch:
        """Return the rows ``indices``, in that order, on the device."""
        rows = torch.as_tensor(indices, dtype=torch.int64)
        if self._expect is not None:
            self._expect(rows.numpy())
        taken = moved(
            _mapped(self._columns, lambda column: column.index_select(0, rows)), self._device, self._dtype
        )
        return CountedBatch(taken, len(rows))


class DatasetSamples:
    """A map-style data set (``__len__`` and ``__getitem__``), collated sample by sample.

    ``item`` and ``collate`` are the user's, already guarded. While a sample is made, torch's, numpy's
    and Python's random generators are seeded from (``seed``, split, epoch, sample) and put back afterwards.
    """

    def __init__(self, items: Items, seed: int, device: torch.device, dtype: torch.dtype) -> None:
        self._items = items
        self._seed = seed
        self._device = device
        self._dtype = dtype

    def __len__(self) -> int:
        return self._items.length

    def batch(self, indices: Sequence[int], epoch: int) -> CountedBatch:
        """Return the samples ``indices``, in that order, as ``epoch`` augments them, on the device."""
        with _generators_kept():
            made = []
            for index in indices:
                seed_generators(self._seed, self._items.split, epoch, int(index))
                made.append(self._items.item(int(index)))
            data = self._items.collate(made)
        return CountedBatch(moved(data, self._device, self._dtype), len(made))


@dataclass(frozen=True, slots=True)
class Items:
    """What `DatasetSamples` needs of a data set."""

    split: str
    length: int
    item: Callable[[int], Any]
    collate: Callable[[list[Any]], Any]


def seed_generators(seed: int, split: str, epoch: int, sample: int) -> None:
    """Seed the generators of torch (CPU), numpy and Python from these four alone."""
    text = f"{seed}/{split}/{epoch}/{sample}".encode()
    number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
    torch.default_generator.manual_seed(number)
    np.random.seed(number & 0xFFFFFFFF)
    random.seed(number)


@contextmanager
def _generators_kept() -> Iterator[None]:
    """Put the three generators back as they were: what a batch draws is nobody else's affair."""
    of_torch, of_numpy, of_python = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        torch.set_rng_state(of_torch)
        np.random.set_state(of_numpy)
        random.setstate(of_python)


def moved(data: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """Return ``data`` with its tensors on ``device`` and those of floating point in ``dtype``.

    numpy arrays become tensors; what holds no tensor is left as it is.
    """

    def place(leaf: torch.Tensor) -> torch.Tensor:
        return leaf.to(device, dtype) if leaf.is_floating_point() else leaf.to(device)

    return _mapped(data, place)


def _mapped(data: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    match data:
        case torch.Tensor():
            return change(data)
        case np.ndarray():
            return change(torch.from_numpy(np.ascontiguousarray(data)))
        case Mapping():
            return {key: _mapped(value, change) for key, value in data.items()}
        case tuple() if hasattr(data, "_fields"):  # a named tuple
            return type(data)(*(_mapped(value, change) for value in data))
        case tuple():
            return tuple(_mapped(value, change) for value in data)
        case list():
            return [_mapped(value, change) for value in data]
        case _:
            return data


def _mapped_kept(columns: Any, dtype: torch.dtype) -> Any:
    """Return ``columns`` as tensors: in ``dtype``, but those that are mapped from a file as they are.

    A batch's rows are turned into ``dtype`` when they are taken: number by number, so to the same bits.
    """
    if isinstance(columns, np.ndarray) and is_mapped(columns):
        return read_only_tensor(columns)
    match columns:
        case tuple():
            return tuple(_mapped_kept(column, dtype) for column in columns)
        case Mapping():
            return {key: _mapped_kept(column, dtype) for key, column in columns.items()}
        case _:
            return moved(columns, torch.device("cpu"), dtype)


def is_mapped(array: npt.NDArray[Any]) -> bool:
    """Whether ``array`` lies in a file: a memory map, or a view of one."""
    base: object = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return True
        base = base.base
    return False


def _leaves(data: Any) -> Iterator[torch.Tensor]:
    match data:
        case Mapping():
            for value in data.values():
                yield from _leaves(value)
        case tuple() | list():
            for value in data:
                yield from _leaves(value)
        case _:
            yield data
