"""What a bundle is: the files of a job, or of a result, as one unit that anybody can verify.

The digest is a tree: a file's is over its size and its chunks' hashes, the bundle's over names and files. So
a manifest is verified by computing its digest, a chunk by its hash, and nothing else of a peer is believed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from daisychain.core.names import check_names, shown
from daisychain.errors import BundleError

CHUNK_BYTES = 1 << 20
"""One chunk: what is fetched, verified and remembered at once."""

HASH_BYTES = 32
"""A sha256."""

_FILE, _BUNDLE = b"daisychain file 1\0", b"daisychain bundle 1\0"
"""Each kind of hash begins in its own way, so none can be passed off as another."""


@dataclass(frozen=True, slots=True)
class ManifestLimits:
    """What a bundle may be.

    Attributes:
        files_max: most files and folders: bounds the time of a look (a data set belongs in few files).
        bytes_max: most bytes: bounds the time of hashing it (some 5 minutes for 64 GiB).
    """

    files_max: int = 20_000
    bytes_max: int = 64 << 30

    @property
    def chunks_max(self) -> int:
        """Most chunks of a bundle: every file may end in a part of one."""
        return self.bytes_max // CHUNK_BYTES + self.files_max


BUNDLE_LIMITS = ManifestLimits()
"""Of every bundle that travels: a node with other ones would refuse what the rest takes."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a bundle.

    Attributes:
        name: relative to the bundle's folder, with ``/``, in Unicode's composed form (NFC).
        size_bytes: the file's size.
        chunks: sha256 of each CHUNK_BYTES of it, of the rest at the end; none of an empty file.
    """

    name: str
    size_bytes: int
    chunks: tuple[bytes, ...]

    @property
    def hash(self) -> bytes:
        """The sha256 over size and chunks."""
        total = hashlib.sha256(_FILE + self.size_bytes.to_bytes(8, "big"))
        total.update(b"".join(self.chunks))
        return total.digest()


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a bundle, by name."""

    files: tuple[FileEntry, ...]

    @property
    def digest(self) -> str:
        """The bundle's sha256 (hex) over sorted names and files' hashes; of a job it is the job's own.

        Takes time for many files (20 ms for 20,000): keep it.
        """
        total = hashlib.sha256(_BUNDLE)
        for file in self.files:
            name = file.name.encode()
            total.update(len(name).to_bytes(8, "big") + name + file.hash)
        return total.hexdigest()

    @property
    def size_bytes(self) -> int:
        """The size of all files together."""
        return sum(file.size_bytes for file in self.files)

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Yield every (file, chunk) by index, in order."""
        for index, file in enumerate(self.files):
            for chunk in range(len(file.chunks)):
                yield index, chunk

    def chunk_size(self, file: int, chunk: int) -> int:
        """Return the bytes of a chunk; raises IndexError when there is none such."""
        entry = self.files[file]
        if not 0 <= chunk < len(entry.chunks) or file < 0:
            raise IndexError(f"no chunk {chunk} in file {file}")
        return min(CHUNK_BYTES, entry.size_bytes - chunk * CHUNK_BYTES)


def folders_of(manifest: Manifest) -> frozenset[str]:
    """Return the folders that the names of its files lead through."""
    folders: set[str] = set()
    for file in manifest.files:
        folder = file.name.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return frozenset(folders)


def chunk_count(size_bytes: int) -> int:
    """Return how many chunks a file of this size has."""
    return -(-size_bytes // CHUNK_BYTES)


def check_manifest(manifest: Manifest, limits: ManifestLimits = BUNDLE_LIMITS) -> None:
    """Raise `BundleError`, naming the file and the rule, unless ``manifest`` can be that of a bundle.

    After it every name is safe below any folder, no two are one file, and sizes and chunks agree; whether
    the digest is the one that was asked for is the caller's to compare.
    """
    files = manifest.files
    if not files:
        raise BundleError("the bundle", "it holds no files")
    check_names([file.name for file in files], limits.files_max)
    total, before = 0, ""
    for file in files:
        if file.name <= before:
            raise BundleError(shown(file.name), f"it is not sorted after {shown(before)}")
        before = file.name
        if file.size_bytes < 0:
            raise BundleError(shown(file.name), f"its size is {file.size_bytes}")
        total += file.size_bytes
        if total > limits.bytes_max:
            raise BundleError(
                shown(file.name),
                f"with it the bundle holds {total} bytes, and one may hold {limits.bytes_max}",
                "Train on a part of the data",
            )
        if len(file.chunks) != chunk_count(file.size_bytes):
            raise BundleError(
                shown(file.name),
                f"{len(file.chunks)} chunks do not make {file.size_bytes} bytes",
            )
        if any(len(chunk) != HASH_BYTES for chunk in file.chunks):
            raise BundleError(shown(file.name), "a chunk's hash is no sha256")
