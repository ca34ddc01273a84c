"""What is in one job's folder: its files, bounded, and the manifest of their contents."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from daisychain.core.manifest import HASH_BYTES, FileEntry, Manifest
from daisychain.core.names import DEPTH_MAX, LEFT_OUT, RESULT_FOLDER, shown
from daisychain.host.bundles.reading import FileStamp, hash_chunks

RACY_S = 2.0
"""A file changed this recently may change again within its time stamp's grain: not cached."""

CHUNKS_MAX = 1 << 18
"""Most chunks whose hashes are remembered (8 MiB for 256 GiB of data)."""

BESIDES_MAX = 1000
"""Most entries that are no part of the job, such as hidden files: bounds the time of a look."""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """One file of a job. ``name``: relative to the job's folder, with ``/``, composed (NFC)."""

    name: str
    stamp: FileStamp


@dataclass(frozen=True, slots=True)
class Listing:
    """A folder's files by name; ``problem`` names what cannot be part of a job; empty otherwise."""

    files: tuple[ListedFile, ...]
    problem: str = ""

    @property
    def bytes(self) -> int:
        """The size of all files together."""
        return sum(file.stamp.size_bytes for file in self.files)

    @property
    def newest_at(self) -> float:
        """When the file changed that changed last (Unix seconds); 0 without files."""
        return max((max(file.stamp.mtime_ns, file.stamp.ctime_ns) / 1e9 for file in self.files), default=0.0)

    def fingerprint(self) -> str:
        """Return a hash of names, sizes, times and inodes: two equal ones mean that nothing changed."""
        total = hashlib.sha256(self.problem.encode("utf-8", "replace"))
        for file in self.files:
            stamp = file.stamp
            total.update(
                f"{file.name}\0{stamp.size_bytes} {stamp.mtime_ns} {stamp.ctime_ns} {stamp.inode}\n".encode()
            )
        return total.hexdigest()


def list_job(folder: Path, files_max: int) -> Listing:
    """Return the job's files, hidden ones and what a run writes left out.

    A link, a device, a pipe, a name that is no UTF-8 and a tree deeper than DEPTH_MAX are a problem of the
    job; more than ``files_max`` entries are not even looked at. Raises OSError when the folder itself
    cannot be read (it is gone).
    """
    files: list[ListedFile] = []
    problem = ""
    try:
        for file in _walk(folder, files_max):
            files.append(file)
    except _Unfit as unfit:
        problem = str(unfit)
    return Listing(tuple(sorted(files, key=lambda file: file.name)), problem)


class _Unfit(Exception):
    """Something in the folder cannot be part of a job."""


def _walk(folder: Path, files_max: int) -> Iterator[ListedFile]:
    pending, seen, besides = [(folder, 1)], 0, 0
    while pending:
        here, depth = pending.pop()
        for entry in _entries(folder, here, files_max + BESIDES_MAX + 1 - seen):
            seen += 1
            left_out = entry.name.startswith(".") or (
                here == folder and entry.name in (RESULT_FOLDER, LEFT_OUT)
            )
            besides += left_out
            if seen - besides > files_max or besides > BESIDES_MAX:
                raise _Unfit(f"it holds more than {files_max} files and folders")
            if left_out:
                continue
            path = Path(entry.path)
            name = _name(folder, path)
            if entry.is_dir(follow_symlinks=False):
                if depth == DEPTH_MAX:
                    raise _Unfit(f"{shown(name)} lies more than {DEPTH_MAX} folders deep")
                if entry.name != LEFT_OUT:
                    pending.append((path, depth + 1))
                continue
            try:
                facts = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                raise _Unfit(f"{shown(name)} is just being replaced") from None
            if stat.S_ISLNK(facts.st_mode):
                raise _Unfit(
                    f"{shown(name)} is a link, and a job holds the files themselves; "
                    "`daisychain submit` copies what links point to"
                )
            if not stat.S_ISREG(facts.st_mode):
                raise _Unfit(f"{shown(name)} is not a file")
            yield ListedFile(_composed(folder, name, facts), FileStamp.of(facts))


def _entries(folder: Path, here: Path, most: int) -> list[os.DirEntry[str]]:
    """Return up to ``most`` entries by name: of a folder with millions no more are held."""
    try:
        with os.scandir(here) as found:
            return sorted(islice(found, most), key=lambda entry: entry.name)
    except PermissionError:
        if here == folder:
            raise
        raise _Unfit(f"{_name(folder, here)} cannot be opened: permission denied") from None


def _name(folder: Path, path: Path) -> str:
    name = path.relative_to(folder).as_posix()
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise _Unfit(f"the file name {name!r} is not UTF-8") from None
    return name


def _composed(folder: Path, name: str, facts: os.stat_result) -> str:
    """Return the name in Unicode's composed form where this disk finds the file under that one, too.

    An old Mac's disk tells every name decomposed. On others the two are two names, and the one on the disk
    is told: it is refused.
    """
    composed = unicodedata.normalize("NFC", name)
    if composed == name:
        return name
    try:
        same = os.path.samestat((folder / composed).lstat(), facts)
    except OSError:
        return name
    return composed if same else name


class Digests:
    """Contents hashed once: by size, times and inode. Several threads may ask.

    At most ``files_max`` files are remembered and CHUNKS_MAX chunks; the one longest unused is forgotten
    first.
    """

    def __init__(self, files_max: int, chunks_max: int = CHUNKS_MAX) -> None:
        self._files_max = files_max
        self._chunks_max = chunks_max
        self._known: dict[str, tuple[FileStamp, bytes]] = {}
        self._chunks = 0
        self._lock = threading.Lock()

    def manifest(self, folder: Path, listing: Listing, wall: float) -> Manifest:
        """Return the manifest of the files in ``listing``, by name.

        Takes as long as reading what is new. ``wall`` (Unix seconds) tells which files are too young for
        their time stamp to be trusted. Raises OSError for a file that cannot be read, or that changed
        since it was listed.
        """
        return Manifest(tuple(self._entry(folder, file, wall) for file in listing.files))

    def _entry(self, folder: Path, file: ListedFile, wall: float) -> FileEntry:
        hashes = self._hashes(folder, file, wall)
        chunks = (hashes[at : at + HASH_BYTES] for at in range(0, len(hashes), HASH_BYTES))
        return FileEntry(file.name, file.stamp.size_bytes, tuple(chunks))

    def _hashes(self, folder: Path, file: ListedFile, wall: float) -> bytes:
        path = str(folder / file.name)
        with self._lock:
            known = self._known.get(path)
            if known is not None and known[0] == file.stamp:
                self._known[path] = self._known.pop(path)  # the youngest is the last
                return known[1]
        hashes = hash_chunks(folder, file.name, file.stamp)
        if abs(wall - file.stamp.mtime_ns / 1e9) > RACY_S:
            with self._lock:
                self._forget(path)
                self._known[path] = (file.stamp, hashes)
                self._chunks += len(hashes) // HASH_BYTES
                while len(self._known) > self._files_max or self._chunks > self._chunks_max:
                    self._forget(next(iter(self._known)))
        return hashes

    def _forget(self, path: str) -> None:
        known = self._known.pop(path, None)
        if known is not None:
            self._chunks -= len(known[1]) // HASH_BYTES
