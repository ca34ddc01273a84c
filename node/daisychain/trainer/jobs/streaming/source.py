"""The file that holds a job's data: known by what the file system tells, and by its content."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

READ_BYTES = 1 << 20


class SourceFile(msgspec.Struct, frozen=True):
    """A file as the file system tells it: the same facts mean the same content."""

    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int

    @classmethod
    def of(cls, path: Path) -> SourceFile:
        """Return the facts of ``path`` as they are now; raises OSError."""
        facts = path.stat()
        return cls(facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino, facts.st_dev)

    @staticmethod
    def digest(path: Path) -> str:
        """Return the sha256 of the content; raises OSError."""
        found = hashlib.sha256()
        with path.open("rb", buffering=0) as file:
            while data := file.read(READ_BYTES):
                found.update(data)
        return found.hexdigest()
