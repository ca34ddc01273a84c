"""A table as blocks of rows: held in memory while they are few, in a scratch file beyond that.

Whoever walks a table walks its blocks and never knows where they are; nothing that is computed from
them may depend on where one block ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

import numpy as np
import numpy.typing as npt

BLOCK_CELLS = 1 << 19
"""Cells of one block, about: bounds the memory that one takes (4 MiB; 40 MiB as text)."""

BLOCK_ROWS_MAX = 1 << 16

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int32]
Cells = Floats | Singles | Codes
"""One column of a block: numbers (NaN is missing), or text by code (-1 is missing)."""

Block = Mapping[str, Cells]


def block_rows(columns: int) -> int:
    """Return the rows of a block with so many columns."""
    return max(1, min(BLOCK_ROWS_MAX, BLOCK_CELLS // max(1, columns)))


class Blocks(Protocol):
    """The rows of a table, to be walked as often as one likes."""

    @property
    def rows(self) -> int:
        """The number of rows."""

    def walk(self, names: Collection[str]) -> Iterator[tuple[int, Block]]:
        """Yield (number of the first row, block) with the columns ``names``, in the order of the rows."""


class Scratch(Protocol):
    """Room on the disk for blocks that do not fit into memory."""

    def open(self) -> BinaryIO:
        """Return a new empty file that vanishes with the process."""

    def take(self, size_bytes: int) -> None:
        """Claim so many bytes more before they are written; raises `JobError` when there is no room."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """Where one column of a block lies in the scratch file."""

    offset: int
    rows: int
    dtype: np.dtype[Any]


class StoredBlocks:
    """Blocks that were appended once: in memory up to ``memory_bytes``, then all of them in ``scratch``."""

    def __init__(self, memory_bytes: int, scratch: Scratch) -> None:
        self._memory_bytes = memory_bytes
        self._scratch = scratch
        self._held: list[Block] = []
        self._held_bytes = 0
        self._file: BinaryIO | None = None
        self._placed: list[dict[str, _Placed]] = []
        self._written = self._taken = 0
        self.rows = 0

    def append(self, block: Block) -> None:
        """Take the next block; raises `JobError` when it fits neither memory nor the disk."""
        self.rows += len(next(iter(block.values()), ()))
        if self._file is None:
            self._held.append(block)
            self._held_bytes += sum(cells.nbytes for cells in block.values())
            if self._held_bytes <= self._memory_bytes:
                return
            self._file = self._scratch.open()
            held, self._held = self._held, []
            for earlier in held:
                self._write(self._file, earlier)
        else:
            self._write(self._file, block)

    def walk(self, names: Collection[str]) -> Iterator[tuple[int, Block]]:
        """See `Blocks`."""
        start = 0
        for block in self._held:
            yield start, {name: block[name] for name in names}
            start += len(next(iter(block.values()), ()))
        for placed in self._placed:
            yield start, {name: self._read(placed[name]) for name in names}
            start += next(iter(placed.values())).rows

    def clear(self) -> None:
        """Forget the blocks: the memory is free again, the scratch file is written over."""
        self._held, self._held_bytes, self._placed, self.rows = [], 0, [], 0
        self._written = 0

    def close(self) -> None:
        """Give the memory and the disk back."""
        self.clear()
        if self._file is not None:
            self._file.close()

    def _write(self, file: BinaryIO, block: Block) -> None:
        placed = {}
        more = self._written + sum(cells.nbytes for cells in block.values()) - self._taken
        if more > 0:
            self._scratch.take(more)
            self._taken += more
        file.seek(self._written)
        for name, cells in block.items():
            file.write(np.ascontiguousarray(cells).data)
            placed[name] = _Placed(self._written, len(cells), cells.dtype)
            self._written += cells.nbytes
        file.flush()
        self._placed.append(placed)

    def _read(self, placed: _Placed) -> Cells:
        assert self._file is not None  # noqa: S101 - what is placed is in a file
        self._file.seek(placed.offset)
        data = self._file.read(placed.rows * placed.dtype.itemsize)
        cells: Cells = np.frombuffer(data, dtype=placed.dtype)
        return cells
