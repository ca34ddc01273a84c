"""What fetched copies may take of the disk, and which of them go to make room: decided from numbers alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from daisychain.core.manifest import Manifest, folders_of

SHARE_OF_DISK = 10
"""Fetched copies may take a tenth of the disk unless a person says otherwise."""

FREE_FLOOR_BYTES = 1 << 30
FREE_FLOOR_SHARE = 20
"""What stays free whatever the budget: 1 GiB, or a twentieth of a disk below 20 GiB."""

BLOCK_BYTES = 4096
"""What each file and folder takes at least, and what its last block may waste."""


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk of the jobs folder: its size, and what is free for this user."""

    total_bytes: int
    free_bytes: int

    @property
    def floor_bytes(self) -> int:
        """What must stay free."""
        return min(FREE_FLOOR_BYTES, self.total_bytes // FREE_FLOOR_SHARE)


@dataclass(frozen=True, slots=True)
class FetchedCopy:
    """A job's folder that this node fetched from others.

    Attributes:
        name: its folder's name.
        digest: of the job.
        inode: of the folder: another folder of that name is none of ours.
        takes_bytes: of the disk.
        placed_at: Unix seconds.
    """

    name: str
    digest: str
    inode: int
    takes_bytes: int
    placed_at: float


@dataclass(frozen=True, slots=True)
class Room:
    """There is room for the bundle once ``remove`` are gone (in this order; mostly none)."""

    remove: tuple[FetchedCopy, ...]


@dataclass(frozen=True, slots=True)
class NoRoom:
    """There is none: the numbers, and what to do."""

    reason: str
    remedy: str


def make_room(
    need_bytes: int,
    copies: Iterable[FetchedCopy],
    in_use: frozenset[str],
    disk: Disk,
    max_bytes: int | None = None,
) -> Room | NoRoom:
    """Return whether a bundle that takes ``need_bytes`` more may be fetched, and which copies go for it.

    ``max_bytes`` is what a person allows all copies together; None = a tenth of the disk. Copies of jobs in
    ``in_use`` (digests: a run of theirs has not ended) stay; the others go, the oldest first, and only as
    many as are needed. Nothing goes when it would not suffice.
    """
    copies = tuple(copies)
    budget = disk.total_bytes // SHARE_OF_DISK if max_bytes is None else max_bytes
    taken = sum(copy.takes_bytes for copy in copies)
    too_much = max(taken + need_bytes - budget, need_bytes + disk.floor_bytes - disk.free_bytes)
    remove: list[FetchedCopy] = []
    for copy in sorted(copies, key=lambda copy: (copy.placed_at, copy.name)):
        if too_much <= 0:
            break
        if copy.digest not in in_use:
            remove.append(copy)
            too_much -= copy.takes_bytes
    if too_much <= 0:
        return Room(tuple(remove))
    kept = [copy for copy in copies if copy.digest in in_use]
    kept_bytes = sum(copy.takes_bytes for copy in kept)
    if kept_bytes + need_bytes > budget:
        beside = f", beside {told(kept_bytes)} of {len(kept)} that have not ended" if kept else ""
        return NoRoom(
            f"it takes {told(need_bytes)}, and fetched copies may take {told(budget)}{beside}",
            "Raise fetched_max_bytes on this node, or copy the job's folder there by hand",
        )
    return NoRoom(
        f"it takes {told(need_bytes)}, and of the {told(disk.free_bytes)} free on the disk "
        f"{told(disk.floor_bytes)} stay free",
        "Make room on the disk of the jobs folder",
    )


def footprint_bytes(manifest: Manifest) -> int:
    """Return what the bundle takes of a disk at most: its bytes, and a block for each file and folder.

    An empty file takes some, too: a manifest of countless ones is no way around the budget.
    """
    return manifest.size_bytes + BLOCK_BYTES * (1 + 2 * len(manifest.files) + len(folders_of(manifest)))


def told(size_bytes: int) -> str:
    """Return the size as a person reads it."""
    size = float(max(0, size_bytes))
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def read_disk(folder: Path) -> Disk:
    """Return the disk that ``folder`` is on. Raises OSError."""
    if os.name != "posix":
        usage = shutil.disk_usage(folder)
        return Disk(usage.total, usage.free)
    facts = os.statvfs(folder)
    return Disk(facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize)
