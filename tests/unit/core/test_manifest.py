"""A manifest is a bundle's whole identity: whatever changes about the files changes its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from daisychain.core.manifest import (
    CHUNK_BYTES,
    FileEntry,
    Manifest,
    ManifestLimits,
    check_manifest,
)
from daisychain.errors import BundleError


def entry(name: str, data: bytes) -> FileEntry:
    chunks = (data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES))
    return FileEntry(name, len(data), tuple(hashlib.sha256(chunk).digest() for chunk in chunks))


LONG = bytes(CHUNK_BYTES) + b"tail"
GOOD = Manifest((entry("data.bin", LONG), entry("empty", b""), entry("job.yaml", b"kind: table")))


def test_a_good_manifest_is_taken_and_counts_its_chunks() -> None:
    check_manifest(GOOD)
    assert list(GOOD.chunks()) == [(0, 0), (0, 1), (2, 0)]
    assert GOOD.size_bytes == len(LONG) + 11
    assert [GOOD.chunk_size(file, chunk) for file, chunk in GOOD.chunks()] == [CHUNK_BYTES, 4, 11]
    for beyond in ((0, 2), (0, -1), (1, 0), (3, 0), (-1, 0)):
        with pytest.raises(IndexError):
            GOOD.chunk_size(*beyond)


def test_the_digest_is_this_very_number() -> None:
    """Nodes of one version tell it to one another, and run ids begin with it: it never changes unseen."""
    assert GOOD.digest == "04c34146bfac1c59d6cb30bab994934ad1213cf83882f3d127881de0346589b8"


@pytest.mark.parametrize(
    "other",
    [
        Manifest(GOOD.files[:2]),
        Manifest((*GOOD.files, entry("more", b""))),
        Manifest((replace(GOOD.files[0], name="data.bim"), *GOOD.files[1:])),
        Manifest((replace(GOOD.files[0], size_bytes=len(LONG) + 1), *GOOD.files[1:])),
        Manifest((entry("data.bin", LONG[:-1] + b"L"), *GOOD.files[1:])),
        Manifest((replace(GOOD.files[0], chunks=GOOD.files[0].chunks[::-1]), *GOOD.files[1:])),
        Manifest((entry("data.bin", b""), entry("empty", LONG), GOOD.files[2])),
        Manifest((GOOD.files[1], GOOD.files[0], GOOD.files[2])),
    ],
)
def test_any_difference_is_another_digest(other: Manifest) -> None:
    assert other.digest != GOOD.digest


def first(change: Callable[[FileEntry], FileEntry]) -> Manifest:
    return Manifest((change(GOOD.files[0]), *GOOD.files[1:]))


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (Manifest(()), "no files"),
        (Manifest(GOOD.files[::-1]), "not sorted"),
        (Manifest((GOOD.files[0], GOOD.files[0])), "not sorted"),
        (first(lambda file: replace(file, size_bytes=-1)), "size is -1"),
        (first(lambda file: replace(file, size_bytes=1)), "do not make"),
        (first(lambda file: replace(file, size_bytes=3 * CHUNK_BYTES)), "do not make"),
        (first(lambda file: replace(file, chunks=())), "do not make"),
        (first(lambda file: replace(file, chunks=(b"short", bytes(32)))), "no sha256"),
        (first(lambda file: replace(file, size_bytes=1 << 60)), "one may hold"),
        (first(lambda file: replace(file, name="../up")), "part by part"),
    ],
)
def test_a_bad_one_is_refused_by_name(bad: Manifest, says: str) -> None:
    with pytest.raises(BundleError, match=says):
        check_manifest(bad)


def test_what_a_bundle_may_be_is_bounded() -> None:
    with pytest.raises(BundleError, match="more than 2 files"):
        check_manifest(GOOD, ManifestLimits(files_max=2))
    with pytest.raises(BundleError, match=f"{GOOD.size_bytes} bytes.*{GOOD.size_bytes - 1}"):
        check_manifest(GOOD, ManifestLimits(bytes_max=GOOD.size_bytes - 1))
    check_manifest(GOOD, ManifestLimits(files_max=3, bytes_max=GOOD.size_bytes))
