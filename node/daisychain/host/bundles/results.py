"""The result folders of this node's jobs: which hold a run's result as it came to be, and what a person made.

A job's own code may have planted anything in its folder. So a result is read through descriptors, part by
part from the job's folder, and a link or a device in it makes it none that is told or given to anybody.
"""

from __future__ import annotations

import os
import stat
import threading
from dataclasses import dataclass
from pathlib import Path

import msgspec

from daisychain.core.ids import RunId
from daisychain.core.manifest import BUNDLE_LIMITS, FileEntry, Manifest, check_manifest
from daisychain.core.names import RESULT_FOLDER
from daisychain.core.node import JOBS_MAX
from daisychain.errors import BundleError, StorageError
from daisychain.host.bundles.below import opened
from daisychain.host.job_listing import Digests, ListedFile, Listing, list_job
from daisychain.host.storage import read_bounded, set_aside, write_atomically

SUMMARY_FILE = "summary.json"
SUMMARY_MAX_BYTES = 1 << 20
BOOK_MAX = 4 * JOBS_MAX
BOOK_MAX_BYTES = 1 << 20
"""Largest record accepted: BOOK_MAX names of 255 bytes, with room to spare."""


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a job's result folder held when it came to be. ``name``: the job folder's."""

    name: str
    run_id: RunId
    digest: str


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    entries: list[_Entry]


class _Summary(msgspec.Struct):
    """The one key of a summary that tells whose result it is."""

    run_id: str


@dataclass(frozen=True, slots=True)
class FoundResult:
    """A result folder. ``ours``: it is as it was published or fetched, so it may be told and replaced."""

    run_id: RunId | None
    digest: str
    ours: bool


NOT_OURS = FoundResult(None, "", ours=False)
"""Something stands there that is no result of a run, or none any more."""


class ResultBook:
    """Remembers each result as it came to be (``results.json``); several threads may ask.

    A result that a person edited has another digest from then on: it is theirs, is told to nobody and
    replaced by nothing that comes from another node. Without the record (it was damaged) what stands there
    now counts as it came to be.
    """

    def __init__(self, path: Path) -> None:
        """Read the record. Raises `StorageError` when a damaged one cannot be moved aside."""
        self._path = path
        self._digests = Digests(BUNDLE_LIMITS.files_max)
        self._lock = threading.RLock()
        self._entries: dict[str, _Entry] = {}
        self.problem = ""
        try:
            data = read_bounded(path, BOOK_MAX_BYTES)
            if data is not None:
                entries = msgspec.json.decode(data, type=_File).entries
                self._entries = {entry.name: entry for entry in entries}
        except (StorageError, msgspec.DecodeError, UnicodeDecodeError) as error:
            self.problem = (
                f"the record of results was damaged ({error}) and is kept as {set_aside(path)}: "
                "a result that was edited before counts as the run's own"
            )

    def look(self, folder: Path, wall: float) -> FoundResult | None:
        """Return what stands in ``folder/result``; None when nothing does. ``wall``: Unix seconds.

        A result of a run that was not seen here before is remembered as it is now.
        """
        if not os.path.lexists(folder / RESULT_FOLDER):
            return None
        try:
            manifest = self.manifest(folder, wall)
        except BundleError:
            return NOT_OURS
        run_id = result_run(folder)
        if run_id is None:
            return NOT_OURS
        with self._lock:
            known = self._entries.get(folder.name)
            if known is None or known.run_id != run_id:
                self.about_to_place(folder.name, run_id, manifest.digest)
                return FoundResult(run_id, manifest.digest, ours=True)
        return FoundResult(run_id, manifest.digest, ours=known.digest == manifest.digest)

    def about_to_place(self, name: str, run_id: RunId, digest: str) -> None:
        """Remember what is in the folder ``name``, or will be in a moment.

        A record that cannot be written is kept in memory alone: the result is then remembered anew at the
        next start.
        """
        with self._lock:
            self._entries.pop(name, None)
            self._entries[name] = _Entry(name, run_id, digest)
            while len(self._entries) > BOOK_MAX:
                del self._entries[next(iter(self._entries))]
            data = msgspec.json.encode(_File(1, list(self._entries.values())))
            try:
                write_atomically(self._path, data)
            except StorageError as error:
                self.problem = f"{error}"
            else:
                self.problem = ""

    def manifest(self, folder: Path, wall: float) -> Manifest:
        """Return the manifest of ``folder/result``; raises `BundleError` for what cannot travel."""
        try:
            return read_result(folder, self._digests, wall)
        except OSError as error:
            raise BundleError(folder.name, f"its result cannot be read: {error.strerror or error}") from None


def read_result(folder: Path, digests: Digests, wall: float) -> Manifest:
    """Return the manifest of the files in ``folder/result``, hidden ones left out.

    Raises `BundleError` when something in it is no plain file or may not travel, OSError when it cannot be
    read or changes meanwhile.
    """
    result = folder / RESULT_FOLDER
    if not stat.S_ISDIR(result.lstat().st_mode):
        raise BundleError(folder.name, f"{RESULT_FOLDER} is no folder")
    listing = list_job(result, BUNDLE_LIMITS.files_max)
    if listing.problem:
        raise BundleError(folder.name, f"its result cannot be given to others: {listing.problem}")
    if listing.bytes > BUNDLE_LIMITS.bytes_max:
        raise BundleError(folder.name, f"its result holds over {BUNDLE_LIMITS.bytes_max} bytes")
    below = [ListedFile(f"{RESULT_FOLDER}/{file.name}", file.stamp) for file in listing.files]
    whole = digests.manifest(folder, Listing(tuple(below)), wall)  # each from the job's folder down
    start = len(RESULT_FOLDER) + 1
    manifest = Manifest(tuple(FileEntry(f.name[start:], f.size_bytes, f.chunks) for f in whole.files))
    check_manifest(manifest)
    return manifest


def result_run(folder: Path) -> RunId | None:
    """Return the run whose result lies in ``folder/result``; None when its summary does not tell."""
    try:
        with opened(folder, f"{RESULT_FOLDER}/{SUMMARY_FILE}") as file:
            if os.fstat(file).st_size > SUMMARY_MAX_BYTES:
                return None
            data = os.pread(file, SUMMARY_MAX_BYTES, 0)
        return RunId(msgspec.json.decode(data, type=_Summary).run_id)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
