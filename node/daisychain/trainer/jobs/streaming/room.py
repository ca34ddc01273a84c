"""How much memory and disk the data of a job may take on this node."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MEMORY_MAX_BYTES = 8 << 30
"""Most memory for a table, however much the machine has: beyond it the page cache serves as well."""

MEMORY_SHARE = 0.25
"""Part of the free memory that a table may take: it is there twice for a moment, read and encoded, and the
model, its activations and the order of the samples want the rest."""


@dataclass(frozen=True, slots=True)
class DataRoom:
    """Bounds of one loading.

    Attributes:
        memory_bytes: a table's rows, read or encoded, stay in memory up to this; beyond it they are on disk.
        free_bytes: memory that is free; what is larger on disk cannot stay in the page cache.
        cache_folder: where converted tables are kept; None = nowhere, so only memory is left.
        cache_max_bytes: most bytes in it; 0 = half of the disk's free space, what is in it counted as free.
    """

    memory_bytes: int = MEMORY_MAX_BYTES
    free_bytes: int = MEMORY_MAX_BYTES
    cache_folder: Path | None = None
    cache_max_bytes: int = 0

    @classmethod
    def of(cls, free_bytes: int, cache_folder: str, cache_max_bytes: int) -> DataRoom:
        """Return the bounds on a machine with so much free memory."""
        memory_bytes = min(MEMORY_MAX_BYTES, int(free_bytes * MEMORY_SHARE))
        folder = Path(cache_folder) if cache_folder else None
        return cls(memory_bytes, free_bytes, folder, cache_max_bytes)


ANY_ROOM = DataRoom()
"""Memory alone, and plenty."""
