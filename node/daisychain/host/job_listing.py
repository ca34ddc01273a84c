"""What is in one job's folder: its files, bounded, and the digest of their contents."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CHUNK_BYTES = 1 << 20
RACY_S = 2.0
"""A file changed this recently may change again within its time stamp's grain: not cached."""

LEFT_OUT = frozenset({"result", "__pycache__"})
"""Folders that a run itself writes: no part of the job."""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """One file of a job. ``name``: relative to the job's folder, with ``/``."""

    name: str
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class Listing:
    """A folder's files by name; ``problem`` names what cannot be part of a job; empty otherwise."""

    files: tuple[ListedFile, ...]
    problem: str = ""

    @property
    def bytes(self) -> int:
        """The size of all files together."""
        return sum(file.size_bytes for file in self.files)

    def fingerprint(self) -> str:
        """Return a hash of names, sizes, times and inodes: two equal ones mean that nothing changed."""
        total = hashlib.sha256(self.problem.encode("utf-8", "replace"))
        for file in self.files:
            total.update(
                f"{file.name}\0{file.size_bytes} {file.mtime_ns} {file.ctime_ns} {file.inode}\n".encode()
            )
        return total.hexdigest()


def list_job(folder: Path, files_max: int) -> Listing:
    """Return the job's files, hidden ones and what a run writes left out.

    A link to a file counts as the file; a link to a folder, a device, a pipe or a name that is no
    UTF-8 is a problem of the job; more than ``files_max`` entries are not even looked at. Raises
    OSError when the folder itself cannot be read (it is gone).
    """
    files: list[ListedFile] = []
    try:
        for entry in _walk(folder, files_max):
            files.append(entry)
    except _Unfit as unfit:
        return Listing(tuple(sorted(files, key=lambda file: file.name)), str(unfit))
    return Listing(tuple(sorted(files, key=lambda file: file.name)))


class _Unfit(Exception):
    """Something in the folder cannot be part of a job."""


def _walk(folder: Path, files_max: int) -> Iterator[ListedFile]:
    pending, seen = [folder], 0
    while pending:
        here = pending.pop()
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except PermissionError:
            if here == folder:
                raise
            raise _Unfit(f"{_name(folder, here)} cannot be opened: permission denied") from None
        for entry in entries:
            seen += 1
            if seen > files_max:
                raise _Unfit(f"it holds more than {files_max} files")
            if entry.name.startswith(".") or (here == folder and entry.name in LEFT_OUT):
                continue
            path = Path(entry.path)
            name = _name(folder, path)
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    pending.append(path)
                continue
            try:
                facts = path.stat()
            except FileNotFoundError:
                raise _Unfit(f"{name} is a link to nothing, or is just being replaced") from None
            if stat.S_ISDIR(facts.st_mode):
                raise _Unfit(f"{name} is a link to a folder; copy the folder in instead")
            if not stat.S_ISREG(facts.st_mode):
                raise _Unfit(f"{name} is not a file")
            yield ListedFile(name, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino)


def _name(folder: Path, path: Path) -> str:
    name = path.relative_to(folder).as_posix()
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise _Unfit(f"the file name {name!r} is not UTF-8") from None
    return name


class Digests:
    """Contents hashed once: by (size, mtime, inode), at most ``files_max`` of them."""

    def __init__(self, files_max: int) -> None:
        self._files_max = files_max
        self._known: dict[str, tuple[tuple[int, int, int], bytes]] = {}

    def of(self, folder: Path, listing: Listing, wall: float) -> str:
        """Return sha256 (hex) over the sorted names and contents. Raises OSError (unreadable file).

        ``wall`` (Unix seconds) tells which files are too young for their time stamp to be trusted.
        """
        total = hashlib.sha256()
        for file in listing.files:
            name = file.name.encode()
            total.update(len(name).to_bytes(8, "big") + name + self._contents(folder, file, wall))
        return total.hexdigest()

    def _contents(self, folder: Path, file: ListedFile, wall: float) -> bytes:
        path = folder / file.name
        stamp = (file.size_bytes, file.mtime_ns, file.inode)
        known = self._known.get(str(path))
        if known is not None and known[0] == stamp:
            return known[1]
        contents = hashlib.sha256()
        with path.open("rb") as stream:
            left = file.size_bytes  # a file that grows meanwhile is met again, changed
            while left > 0 and (chunk := stream.read(min(left, CHUNK_BYTES))):
                contents.update(chunk)
                left -= len(chunk)
        if abs(wall - file.mtime_ns / 1e9) > RACY_S:
            if len(self._known) >= self._files_max:
                self._known.clear()
            self._known[str(path)] = (stamp, contents.digest())
        return contents.digest()
