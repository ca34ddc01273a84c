"""Arrays in files of their own: written in order with a hash for each block, checked, mapped into memory."""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import warnings
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import torch

HASHED_BYTES = 4 << 20
"""Bytes under one hash."""

SYNC_BYTES = 64 << 20
"""Written before the disk is waited for: bounds the memory that waits to be written."""

PAGE_BYTES = mmap.PAGESIZE

DTYPES: dict[str, np.dtype[Any]] = {name: np.dtype(name) for name in ("<f4", "<f8", "<i8")}
"""What an array may hold."""


class ArrayCard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of an array in a file.

    Attributes:
        name: of the file.
        dtype: one of `DTYPES`.
        shape: rows, and for a matrix columns.
        hashes: BLAKE2b, 16 bytes in hex, of each `HASHED_BYTES` of the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    hashes: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        """The size of the file."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize

    def fits(self, folder: Path) -> bool:
        """Whether the file in ``folder`` is there, and the card agrees with itself and the file's size."""
        try:
            size = (folder / self.name).stat().st_size
        except OSError:
            return False
        known = self.dtype in DTYPES and len(self.shape) in (1, 2) and min(self.shape) > 0
        return known and size == self.size_bytes and len(self.hashes) == -(-size // HASHED_BYTES)

    def intact(self, folder: Path, blocks: Iterable[int]) -> bool:
        """Whether these blocks of the file have their hashes; raises OSError."""
        with (folder / self.name).open("rb") as file:
            for block in blocks:
                file.seek(block * HASHED_BYTES)
                if _hash(file.read(HASHED_BYTES)) != self.hashes[block]:
                    return False
        return True


class ArrayWriter:
    """Writes one array, piece by piece; errors are OSError."""

    def __init__(self, path: Path, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> None:
        """The file has its full size at once, so that whoever looks sees the room it will take."""
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._path = path
        self._shape = shape
        self._file = path.open("wb", buffering=0)
        self._file.truncate(math.prod(shape) * self._dtype.itemsize)
        self._waiting = bytearray()
        self._hashes: list[str] = []
        self._unsynced = 0

    def append(self, rows: npt.NDArray[np.generic]) -> None:
        """Write the next rows; there may be none."""
        if len(rows) == 0:
            return
        self._waiting += np.ascontiguousarray(rows, dtype=self._dtype).data.cast("B")
        whole = len(self._waiting) // HASHED_BYTES * HASHED_BYTES
        if whole:
            with memoryview(self._waiting) as waiting:
                for start in range(0, whole, HASHED_BYTES):
                    self._write(waiting[start : start + HASHED_BYTES])
            del self._waiting[:whole]

    def finish(self) -> ArrayCard:
        """Write what waits, until it is on the disk; return what is to be remembered of it."""
        if self._waiting:
            with memoryview(self._waiting) as waiting:
                self._write(waiting)
        self._sync()
        self._file.close()
        return ArrayCard(self._path.name, self._dtype.str, self._shape, tuple(self._hashes))

    def close(self) -> None:
        """Give the file up, finished or not."""
        self._file.close()

    def _write(self, block: memoryview) -> None:
        self._hashes.append(_hash(block))
        rest = block
        while len(rest):
            rest = rest[self._file.write(rest) :]
        rest.release()
        self._unsynced += len(block)
        if self._unsynced >= SYNC_BYTES:
            self._sync()

    def _sync(self) -> None:
        os.fsync(self._file.fileno())
        forget_pages(self._file.fileno())
        self._unsynced = 0


def forget_pages(descriptor: int) -> None:
    """Have the kernel drop a file's pages from memory: the next reader gets what is on the disk."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


class MappedArray:
    """An array in a file as a tensor that nobody can write to: the kernel reads what is touched.

    Attributes:
        tensor: lives as long as anybody refers to it.
    """

    def __init__(self, path: Path, card: ArrayCard) -> None:
        """Raises OSError."""
        dtype = DTYPES[card.dtype]
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, descriptor)
        self._descriptor = descriptor
        self._row_bytes = card.size_bytes // card.shape[0]
        mapped = mmap.mmap(descriptor, card.size_bytes, access=mmap.ACCESS_READ)
        if hasattr(mmap, "MADV_RANDOM"):
            mapped.madvise(
                mmap.MADV_RANDOM
            )  # rows are taken in a shuffled order: nothing beside them is wanted
        self.tensor = read_only_tensor(np.frombuffer(mapped, dtype=dtype).reshape(card.shape))

    def expect(self, rows: npt.NDArray[np.int64]) -> None:
        """Have the kernel begin to read ``rows``, all at once: faster than each in its turn."""
        if not hasattr(os, "posix_fadvise"):
            return
        first = rows * self._row_bytes // PAGE_BYTES
        last = ((rows + 1) * self._row_bytes - 1) // PAGE_BYTES
        order = np.argsort(first, kind="stable")
        first, last = first[order], last[order]
        begins = np.flatnonzero(np.concatenate(([True], first[1:] > np.maximum.accumulate(last)[:-1] + 1)))
        ends = np.maximum.reduceat(last, begins)
        for begin, end in zip(first[begins].tolist(), ends.tolist(), strict=True):
            size = (end - begin + 1) * PAGE_BYTES
            os.posix_fadvise(self._descriptor, begin * PAGE_BYTES, size, os.POSIX_FADV_WILLNEED)


def read_only_tensor(array: npt.NDArray[np.generic]) -> torch.Tensor:
    """Return ``array`` as a tensor over the same memory, though that cannot be written to: we never do."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)


def _hash(data: bytes | memoryview) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
