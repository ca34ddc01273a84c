"""Which job folders are copies that this node fetched: only those may ever be removed to make room."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path

import msgspec

from daisychain.core.manifest import BUNDLE_LIMITS
from daisychain.core.node import JOBS_MAX
from daisychain.errors import BundleError, StorageError
from daisychain.host.bundles.below import folder_below
from daisychain.host.bundles.budget import FetchedCopy
from daisychain.host.job_listing import Digests, list_job
from daisychain.host.storage import read_bounded, set_aside, write_atomically

COPIES_MAX = 4 * JOBS_MAX
"""Most copies remembered: the oldest are forgotten first, and so never removed."""

RECORD_MAX_BYTES = 1 << 20
"""Largest record accepted: COPIES_MAX names of 255 bytes, with room to spare."""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """The record on disk."""

    version: int
    copies: list[FetchedCopy]


class FetchedCopies:
    """The record of fetched copies, ``fetched.json`` in the state folder. One thread at a time may use it.

    Without a record (it was damaged) every folder counts as dropped here: too much is kept, never too
    little. ``problem`` then says so.
    """

    def __init__(self, path: Path, jobs_folder: Path) -> None:
        """Read the record. Raises `StorageError` when a damaged one cannot be moved aside."""
        self._path = path
        self._jobs = jobs_folder
        self._copies: list[FetchedCopy] = []
        self.problem = ""
        try:
            data = read_bounded(path, RECORD_MAX_BYTES)
            if data is not None:
                self._copies = msgspec.json.decode(data, type=_File).copies
        except (StorageError, msgspec.DecodeError, UnicodeDecodeError) as error:
            self.problem = (
                f"the record of fetched copies was damaged ({error}) and is kept as {set_aside(path)}: "
                "earlier copies are no longer removed to make room"
            )

    def about_to_place(self, name: str, digest: str, facts: os.stat_result, wall: float) -> None:
        """Remember that the folder with these ``facts`` is about to become ``jobs/name``.

        Before it is renamed: a copy that a crash makes us forget would stay for ever. Its inode tells it
        from a folder of that name that a person drops. Raises `StorageError`.
        """
        copy = FetchedCopy(name, digest, facts.st_ino, 0, wall)
        self._save([*(old for old in self.present() if old.name != name), copy])

    def present(self) -> tuple[FetchedCopy, ...]:
        """Return the copies that are still where they were put, with what they take of the disk now."""
        found = []
        for copy in self._copies:
            with contextlib.suppress(OSError):
                if (self._jobs / copy.name).lstat().st_ino == copy.inode:
                    found.append(replace(copy, takes_bytes=_taken(self._jobs / copy.name)))
        return tuple(found)

    def remove(self, copy: FetchedCopy, digests: Digests, wall: float) -> bool:
        """Remove the job's files from a copy, and the folder with them when nothing else is in it.

        What a person, or a run, put beside them stays: above all ``result/``. A copy that was edited is
        the person's from now on: it stays, and False is returned. Raises `StorageError`.
        """
        folder = self._jobs / copy.name
        try:
            listing = list_job(folder, BUNDLE_LIMITS.files_max)
            manifest = digests.manifest(folder, listing, wall)
            ours = not listing.problem and manifest.digest == copy.digest
            if ours and folder.lstat().st_ino == copy.inode:
                for name in sorted((file.name for file in manifest.files), key=_job_file_first):
                    _remove_file(self._jobs, [copy.name, *name.split("/")])
                with contextlib.suppress(OSError):  # something else is in it
                    folder.rmdir()
            else:
                ours = False
        except (OSError, BundleError) as error:
            raise StorageError(f"{folder} cannot be removed: {error}", "Check its permissions") from None
        self._save([other for other in self._copies if other.name != copy.name])
        return ours

    def _save(self, copies: list[FetchedCopy]) -> None:
        self._copies = copies[-COPIES_MAX:]
        write_atomically(self._path, msgspec.json.encode(_File(1, self._copies)))


def _taken(folder: Path) -> int:
    """Return the bytes of the disk that the job's files take; what else is in the folder is not counted."""
    return sum(_blocks(folder / file.name) for file in list_job(folder, BUNDLE_LIMITS.files_max).files)


def _blocks(path: Path) -> int:
    facts = path.lstat()
    return facts.st_blocks * 512 if hasattr(facts, "st_blocks") else facts.st_size


def _job_file_first(name: str) -> tuple[bool, str]:
    """Sort key: without its job.yaml the folder is no job, half removed or whole."""
    return name != "job.yaml", name


def _remove_file(jobs: Path, parts: list[str]) -> None:
    """Remove a file of a job, never through a link, and the inner folders that it leaves empty."""
    with folder_below(jobs, parts[:-1]) as here:
        os.unlink(parts[-1], dir_fd=here)
    for depth in range(len(parts) - 1, 1, -1):
        with folder_below(jobs, parts[: depth - 1]) as here:
            try:
                os.rmdir(parts[depth - 1], dir_fd=here)
            except OSError:  # something else is in it
                return
