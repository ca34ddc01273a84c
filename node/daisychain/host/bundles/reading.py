"""Files of a bundle as they lie in a folder, read chunk by chunk while they stay what they are."""

from __future__ import annotations

import errno
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from daisychain.core.manifest import CHUNK_BYTES, Manifest
from daisychain.core.names import shown
from daisychain.errors import BundleError
from daisychain.host.bundles.below import opened


@dataclass(frozen=True, slots=True)
class FileStamp:
    """What changes about a file when its contents do."""

    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, facts: os.stat_result) -> FileStamp:
        """Return the stamp in what stat() said."""
        return cls(facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino)


def hash_chunks(folder: Path, name: str, stamp: FileStamp) -> bytes:
    """Return the sha256 of each chunk of the file, one after the other.

    Raises OSError when it is not, or does not stay, the file that ``stamp`` tells of: it is still being
    written.
    """
    hashes = bytearray()
    with opened(folder, name) as file:
        _still(file, stamp, name)
        left = stamp.size_bytes
        while left > 0:
            data = os.pread(file, min(left, CHUNK_BYTES), stamp.size_bytes - left)
            if len(data) < min(left, CHUNK_BYTES):
                data = _whole(file, stamp.size_bytes - left, min(left, CHUNK_BYTES))
            hashes += hashlib.sha256(data).digest()
            left -= len(data)
        _still(file, stamp, name)
    return bytes(hashes)


@dataclass(frozen=True, slots=True)
class BundlePlace:
    """Where a bundle lies: in ``folder`` itself, or in its inner folder ``below``, which may be no link."""

    folder: Path
    below: str = ""

    def way(self, name: str) -> str:
        """Return the way from the folder to the bundle's file ``name``."""
        return f"{self.below}/{name}" if self.below else name


def read_chunk(place: BundlePlace, manifest: Manifest, file: int, chunk: int) -> bytes:
    """Return one chunk of the bundle in ``place``, as its manifest says it is.

    Raises `BundleError` when the file is gone, cannot be read, or is no longer what the manifest says.
    """
    entry = manifest.files[file]
    size_bytes = manifest.chunk_size(file, chunk)
    try:
        with opened(place.folder, place.way(entry.name)) as descriptor:
            data = _whole(descriptor, chunk * CHUNK_BYTES, size_bytes)
    except OSError as error:
        raise BundleError(
            shown(entry.name), f"it cannot be read any more: {error.strerror or error}", "It was changed"
        ) from None
    if hashlib.sha256(data).digest() != entry.chunks[chunk]:
        raise BundleError(shown(entry.name), f"chunk {chunk} is no longer what it was", "It was changed")
    return data


def _whole(file: int, at: int, size_bytes: int) -> bytes:
    """Return ``size_bytes`` from ``at``; raises OSError when the file has less."""
    parts = []
    while size_bytes > 0:
        part = os.pread(file, size_bytes, at)
        if not part:
            raise OSError(errno.ESTALE, "it became shorter while it was read")
        parts.append(part)
        at += len(part)
        size_bytes -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _still(file: int, stamp: FileStamp, name: str) -> None:
    if FileStamp.of(os.fstat(file)) != stamp:
        raise OSError(errno.ESTALE, "it changed while it was read", name)
