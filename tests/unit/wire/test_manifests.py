"""Manifests from a stranger: the honest come through as they were, nothing else does, and none costs much."""

from __future__ import annotations

import random
import tracemalloc

import msgspec
import pytest

from daisychain.core.manifest import BUNDLE_LIMITS, CHUNK_BYTES, FileEntry, Manifest, ManifestLimits
from daisychain.errors import BundleError, ProtocolError
from daisychain.wire.manifests import MANIFEST_MAX_BYTES, decode_manifest, encode_manifest

GOOD = Manifest(
    (
        FileEntry("Zürich.csv", CHUNK_BYTES + 1, (bytes(32), b"\x01" * 32)),
        FileEntry("empty", 0, ()),
        FileEntry("job.yaml", 5, (b"\x02" * 32,)),
    )
)
GOOD = Manifest(tuple(sorted(GOOD.files, key=lambda file: file.name)))


def test_a_manifest_comes_through_as_it_was() -> None:
    assert decode_manifest(encode_manifest(GOOD)) == GOOD


def test_the_largest_bundle_fits_its_bound() -> None:
    many = BUNDLE_LIMITS.files_max
    each = BUNDLE_LIMITS.bytes_max // many
    hashes = tuple(bytes(32) for _ in range(-(-each // CHUNK_BYTES)))
    name = "n" * ((4 << 20) // many - 5)
    largest = Manifest(tuple(FileEntry(f"{number:05}{name}", each, hashes) for number in range(many)))
    data = encode_manifest(largest)
    assert len(data) <= MANIFEST_MAX_BYTES
    assert decode_manifest(data) == largest


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode([1]),
        msgspec.msgpack.encode([2, []]),
        msgspec.msgpack.encode([1, [], 3]),
        msgspec.msgpack.encode([1, [["a", -1, b""]]]),
        msgspec.msgpack.encode([1, [["a", 1.0, bytes(32)]]]),
        msgspec.msgpack.encode([1, [["a", 1, b""]]]),
        msgspec.msgpack.encode([1, [["a", 1, bytes(31)]]]),
        msgspec.msgpack.encode([1, [["a", 1 << 63, bytes(32)]]]),
        msgspec.msgpack.encode([1, [[b"a", 0, b""]]]),
        msgspec.msgpack.encode([1, [["n" * 600, 0, b""]]]),
        msgspec.msgpack.encode([1, [["a", 0, b""]] * 20_001]),
        bytes(MANIFEST_MAX_BYTES + 1),
        b"\x91" * 100_000,
    ],
)
def test_anything_else_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_manifest(data)


def test_a_bundle_that_may_not_be_is_refused_with_its_rule() -> None:
    with pytest.raises(BundleError, match="part by part"):
        decode_manifest(msgspec.msgpack.encode([1, [["../x", 0, b""]]]))
    with pytest.raises(BundleError, match="no files"):
        decode_manifest(msgspec.msgpack.encode([1, []]))
    with pytest.raises(BundleError, match="may hold"):
        decode_manifest(encode_manifest(GOOD), ManifestLimits(bytes_max=100))


def test_a_manifest_of_countless_files_costs_no_memory() -> None:
    bomb = msgspec.msgpack.encode([1, [["", 0, b""]] * 1_600_000])
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            decode_manifest(bomb)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_bits_that_flip_and_ends_that_lack_change_the_digest_or_are_refused() -> None:
    chance, data = random.Random(7), encode_manifest(GOOD)
    for _ in range(2000):
        broken = bytearray(data)
        if chance.random() < 0.3:
            del broken[chance.randrange(len(broken)) :]
        else:
            broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
        try:
            manifest = decode_manifest(bytes(broken))
        except (ProtocolError, BundleError):
            continue
        assert manifest.digest != GOOD.digest or manifest == GOOD
