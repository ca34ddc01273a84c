"""One checkpoint as a file: a whole training state that is either intact or refused, never unpickled.

    magic, version, lengths of what follows      fixed size
    head                                         JSON: whose state it is, see `Head`
    state header, state payload                  see `trees`
    sha256 of everything before it               32 bytes

The lengths must add up to the file's own size before anything is read, so a torn file is known at
once and nothing is allocated for one that lies.
"""

from __future__ import annotations

import hashlib
import os
import struct
from pathlib import Path
from typing import BinaryIO

import msgspec
import torch

from daisychain.errors import StorageError
from daisychain.trainer.record.durable import remedy, sync
from daisychain.trainer.state.trees import HEADER_MAX_BYTES, Packed

VERSION = 1
"""Raised whenever an older reader would misread a checkpoint."""

HEAD_MAX_BYTES = 4096
"""Largest head accepted: a real one is some 150 bytes."""

CHUNK_BYTES = 1 << 20
"""Hashed and written in one go."""

_MAGIC = b"DaisyChain state"
_PREFIX = struct.Struct("<16sIIQQ")
_DIGEST_BYTES = hashlib.sha256().digest_size


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """Whose state a checkpoint holds.

    Attributes:
        run_id: of the run; a state of another one is never used.
        layout: tells models of other tensors apart, see `TrainingState.layout`.
        tick, step: committed.
        rounds_alike, repairs: what the summary tells of the worlds so far, see `results.Summary`.
    """

    run_id: str
    layout: int
    tick: int
    step: int
    rounds_alike: bool | None = None
    repairs: int = 0


def save(path: Path, head: Head, packed: Packed) -> None:
    """Make ``path`` hold the checkpoint, durably: a reader or a power cut meets all of it or nothing.

    Raises `StorageError`.
    """
    scratch = path.with_name(f".{path.name}.new")
    told = msgspec.json.encode(head)
    payload = packed.payload.numpy()
    prefix = _PREFIX.pack(_MAGIC, VERSION, len(told), len(packed.header), payload.nbytes)
    try:
        with scratch.open("wb") as file:
            digest = hashlib.sha256()
            for part in (prefix, told, packed.header, payload.data):
                view = memoryview(part)
                for start in range(0, len(view), CHUNK_BYTES):
                    digest.update(view[start : start + CHUNK_BYTES])
                    file.write(view[start : start + CHUNK_BYTES])
            file.write(digest.digest())
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
        sync(path.parent)
    except OSError as error:
        _remove(scratch)
        room = (payload.nbytes + len(packed.header)) / 1e6
        raise StorageError(
            f"{path} cannot be written: {error.strerror or error}",
            f"{remedy(error)} A checkpoint takes {room:.1f} MB.",
        ) from None


def load(path: Path, payload_max_bytes: int) -> tuple[Head, Packed]:
    """Return what ``path`` holds.

    Raises `StorageError` with the reason unless the file is a whole checkpoint of a version that is known,
    with a payload of at most ``payload_max_bytes``, and unchanged since it was written.
    """
    try:
        with path.open("rb") as file:
            return _load(file, payload_max_bytes)
    except OSError as error:
        raise StorageError(f"it cannot be read: {error.strerror or error}") from None
    except msgspec.DecodeError as error:
        raise StorageError(f"its head is none: {error}") from None


def _load(file: BinaryIO, payload_max_bytes: int) -> tuple[Head, Packed]:
    size = os.fstat(file.fileno()).st_size
    prefix = file.read(_PREFIX.size)
    if len(prefix) < _PREFIX.size:
        raise StorageError(f"it is torn: {size} bytes are less than any checkpoint has")
    magic, version, head_bytes, header_bytes, payload_bytes = _PREFIX.unpack(prefix)
    if magic != _MAGIC:
        raise StorageError("it is no checkpoint, or was altered in its first bytes")
    if version != VERSION:
        raise StorageError(f"it is of version {version}, this DaisyChain reads {VERSION}")
    if head_bytes > HEAD_MAX_BYTES or header_bytes > HEADER_MAX_BYTES or payload_bytes > payload_max_bytes:
        raise StorageError(
            f"it tells of {payload_bytes} bytes of state where at most {payload_max_bytes} can be"
        )
    whole = _PREFIX.size + head_bytes + header_bytes + payload_bytes + _DIGEST_BYTES
    if size != whole:
        raise StorageError(f"it is torn: {size} bytes where it tells of {whole}")
    told, header = file.read(head_bytes), file.read(header_bytes)
    payload = torch.empty(payload_bytes, dtype=torch.uint8)
    digest = hashlib.sha256(prefix)
    digest.update(told)
    digest.update(header)
    view = payload.numpy().data
    for start in range(0, payload_bytes, CHUNK_BYTES):
        part = view[start : start + CHUNK_BYTES]
        if file.readinto(part) != len(part):  # type: ignore[attr-defined]
            raise StorageError("it became shorter while it was read")
        digest.update(part)
    if file.read(_DIGEST_BYTES) != digest.digest():
        raise StorageError("it was altered: its digest is not the one that was written")
    return msgspec.json.decode(told, type=Head), Packed(header, payload)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return  # the next one of that name replaces it
