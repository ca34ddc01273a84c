"""The bounded exchange behind gloo's handshake."""

from __future__ import annotations

import threading
import time

import pytest

from daisychain.core.messages import BLOB_MAX_BYTES
from daisychain.errors import WorldError
from daisychain.trainer.world.store import BlobStore


def store(rank: int = 0, size: int = 3, timeout_s: float = 5.0) -> tuple[BlobStore, list[bytes]]:
    published: list[bytes] = []
    return BlobStore(rank, size, time.monotonic() + timeout_s, published.append), published


def test_the_own_blob_goes_out_and_every_rank_s_comes_in() -> None:
    own, published = store()
    own.set("0/0", b"mine")
    assert published == [b"mine"]
    assert own.get("0/0") == b"mine"
    own.deliver((b"mine", b"b", b"c"))
    own.wait(["0/1", "0/2"])
    assert (own.get("0/1"), own.get("0/2")) == (b"b", b"c")


def test_waiting_ends_when_the_blobs_come() -> None:
    own, _ = store()
    own.set("0/0", b"mine")
    found: list[bytes] = []
    waiter = threading.Thread(target=lambda: found.append(own.get("0/2")))
    waiter.start()
    own.deliver((b"mine", b"b", b"c"))
    waiter.join(5)
    assert found == [b"c"]


def test_waiting_ends_at_the_deadline_and_with_a_failure() -> None:
    late, _ = store(timeout_s=0.0)
    with pytest.raises(WorldError, match="in time"):
        late.wait(["0/1"])
    failed, _ = store()
    failed.fail("a newer plan came")
    failed.fail("the first reason stays")
    with pytest.raises(WorldError, match="a newer plan came"):
        failed.get("0/1")


@pytest.mark.parametrize("key", ["0/1", "1/0", "0/3", "0/-1", "0/x", "rank", "0/0/0"])
def test_any_other_key_is_refused(key: str) -> None:
    with pytest.raises(WorldError):
        store()[0].set(key, b"x")


def test_a_second_blob_and_an_oversized_one_are_refused() -> None:
    own, published = store()
    with pytest.raises(WorldError, match="over the limit"):
        own.set("0/0", b"x" * (BLOB_MAX_BYTES + 1))
    own.set("0/0", b"mine")
    with pytest.raises(WorldError, match="twice"):
        own.set("0/0", b"other")
    assert published == [b"mine"]


@pytest.mark.parametrize(
    "blobs",
    [
        (b"mine", b"b"),
        (b"mine", b"b", b"c", b"d"),
        (b"other", b"b", b"c"),
        (b"mine", b"", b"c"),
        (b"mine", b"x" * (BLOB_MAX_BYTES + 1), b"c"),
    ],
)
def test_a_list_that_cannot_be_this_world_s_fails_the_formation(blobs: tuple[bytes, ...]) -> None:
    own, _ = store()
    own.set("0/0", b"mine")
    own.deliver(blobs)
    with pytest.raises(WorldError):
        own.get("0/1")


def test_blobs_are_taken_once() -> None:
    own, _ = store()
    own.set("0/0", b"mine")
    own.deliver((b"mine", b"b", b"c"))
    own.deliver((b"mine", b"y", b"z"))
    assert own.get("0/1") == b"b"
