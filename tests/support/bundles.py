"""Bundles for tests: made from a mapping of names to contents."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from daisychain.core.manifest import CHUNK_BYTES, FileEntry, Manifest


def file_entry(name: str, data: bytes) -> FileEntry:
    """Return the entry of a file that holds ``data``."""
    return FileEntry(name, len(data), tuple(hashlib.sha256(chunk).digest() for chunk in chunks_of(data)))


def chunks_of(data: bytes) -> list[bytes]:
    """Return ``data`` in chunks."""
    return [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]


def manifest_of(files: Mapping[str, bytes]) -> Manifest:
    """Return the manifest of files by name."""
    return Manifest(tuple(file_entry(name, files[name]) for name in sorted(files)))


def chunk_of(files: Mapping[str, bytes], file: int, chunk: int) -> bytes:
    """Return a chunk of the bundle with these files."""
    return chunks_of(files[sorted(files)[file]])[chunk]
