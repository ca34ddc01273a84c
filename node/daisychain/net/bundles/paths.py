"""What a request for bundles looks like: ``/bundle/<part>/<digest>/manifest`` and ``.../<file>/<chunk>``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from daisychain.core.chunk_schedule import Chunk
from daisychain.core.effects import Part
from daisychain.errors import ProtocolError

PREFIX = "/bundle/"

_PATH = re.compile(r"/bundle/(job|result)/([0-9a-f]{64})/(?:manifest|(\d{1,6})/(\d{1,6}))", re.ASCII)


@dataclass(frozen=True, slots=True)
class BundleKey:
    """Which bundle: by its digest."""

    part: Part
    digest: str


def manifest_path(key: BundleKey) -> str:
    """Return the path of the bundle's manifest."""
    return f"{PREFIX}{key.part.value}/{key.digest}/manifest"


def chunk_path(key: BundleKey, chunk: Chunk) -> str:
    """Return the path of one chunk of it."""
    return f"{PREFIX}{key.part.value}/{key.digest}/{chunk[0]}/{chunk[1]}"


def parse_path(path: str) -> tuple[BundleKey, Chunk | None]:
    """Return what is asked for: a chunk, or the manifest (None). Raises `ProtocolError`."""
    match = _PATH.fullmatch(path)
    if match is None:
        raise ProtocolError("no request for a bundle")
    part, digest, file, chunk = match.groups()
    key = BundleKey(Part(part), digest)
    return key, None if file is None else (int(file), int(chunk))
