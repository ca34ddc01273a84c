"""Manifests to and from bytes: MessagePack, versioned, bounded, and checked before anybody uses one."""

from __future__ import annotations

from typing import Annotated

import msgspec

from daisychain.core.manifest import (
    BUNDLE_LIMITS,
    HASH_BYTES,
    FileEntry,
    Manifest,
    ManifestLimits,
    check_manifest,
    chunk_count,
)
from daisychain.core.names import NAME_MAX_BYTES
from daisychain.errors import ProtocolError

MANIFEST_VERSION = 1
"""Raised whenever an older reader would misread a manifest."""

FILES_MAX = BUNDLE_LIMITS.files_max
"""Most files that are decoded: more would cost memory before anybody could refuse them."""

MANIFEST_MAX_BYTES = 8 << 20
"""Largest manifest: one of 20,000 files and 64 GiB has 4 MiB of names and 2.7 MiB of hashes."""


class _File(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One file on the wire; its chunks' hashes are one text of bytes."""

    name: Annotated[str, msgspec.Meta(max_length=NAME_MAX_BYTES)]
    size_bytes: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
    hashes: bytes


class _Manifest(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A manifest on the wire."""

    version: int
    files: Annotated[tuple[_File, ...], msgspec.Meta(max_length=FILES_MAX)]


_DECODER = msgspec.msgpack.Decoder(_Manifest, strict=True)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of a checked manifest; raises `ProtocolError` when it is oversized."""
    files = tuple(_File(file.name, file.size_bytes, b"".join(file.chunks)) for file in manifest.files)
    data = msgspec.msgpack.encode(_Manifest(MANIFEST_VERSION, files))
    if len(data) > MANIFEST_MAX_BYTES:
        raise ProtocolError(f"a manifest of {len(data)} bytes is over the limit of {MANIFEST_MAX_BYTES}")
    return data


def decode_manifest(data: bytes, limits: ManifestLimits = BUNDLE_LIMITS) -> Manifest:
    """Return the manifest in ``data``, checked; whether its digest is the one asked for is left to do.

    Raises `ProtocolError` for bytes that no honest sender would send, `BundleError` for a bundle that may
    not be. Takes up to half a second for the largest: call it in a thread.
    """
    if len(data) > MANIFEST_MAX_BYTES:
        raise ProtocolError(f"a manifest of {len(data)} bytes is over the limit of {MANIFEST_MAX_BYTES}")
    try:
        wire = _DECODER.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError) as error:
        raise ProtocolError(f"a malformed manifest: {error}") from None
    if wire.version != MANIFEST_VERSION:
        raise ProtocolError(
            f"the sender's manifest is of version {wire.version}, this node reads {MANIFEST_VERSION}",
            "Install the same DaisyChain version on every node.",
        )
    manifest = Manifest(tuple(_entry(file) for file in wire.files))
    check_manifest(manifest, limits)
    return manifest


def _entry(file: _File) -> FileEntry:
    hashes = file.hashes
    if len(hashes) != chunk_count(file.size_bytes) * HASH_BYTES:
        raise ProtocolError(f"{len(hashes)} bytes of hashes do not fit a file of {file.size_bytes} bytes")
    chunks = (hashes[at : at + HASH_BYTES] for at in range(0, len(hashes), HASH_BYTES))
    return FileEntry(file.name, file.size_bytes, tuple(chunks))
