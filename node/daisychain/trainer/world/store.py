"""The bounded exchange behind gloo's handshake: one blob out, every rank's blob in.

A `torch.distributed.Store` that holds nothing but one formation. What gloo sets is handed to
``publish`` (and so to the agent, over authenticated links to the coordinator); what gloo waits for is
what `deliver` brought. No port is opened, and nothing of an older formation can be read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from torch._C._distributed_c10d import Store  # torch.distributed's own, where it is typed

from daisychain.core.messages import BLOB_MAX_BYTES
from daisychain.errors import WorldError


class BlobStore(Store):
    """The store of one formation of one rank; used by gloo from the formation's thread.

    ``publish`` is called once, with this rank's blob. Every wait ends at ``deadline_at`` (monotonic
    seconds) or with `fail`, by `WorldError` (which gloo passes on as a RuntimeError with its words).
    """

    def __init__(self, rank: int, size: int, deadline_at: float, publish: Callable[[bytes], None]) -> None:
        super().__init__()
        self._rank = rank
        self._size = size
        self._deadline_at = deadline_at
        self._publish = publish
        self._changed = threading.Condition()
        self._own: bytes | None = None
        self._blobs: tuple[bytes, ...] | None = None
        self._failure = ""

    def set(self, key: str, value: str | bytes) -> None:
        """Publish this rank's blob; any other key, a second blob or an oversized one is refused."""
        blob = value.encode() if isinstance(value, str) else bytes(value)
        if self._rank_in(key) != self._rank:
            raise WorldError(f"gloo set the key {key!r} on rank {self._rank}")
        if len(blob) > BLOB_MAX_BYTES:
            raise WorldError(f"gloo's address blob has {len(blob)} bytes, over the limit of {BLOB_MAX_BYTES}")
        with self._changed:
            if self._own is not None:
                raise WorldError(f"gloo set the key {key!r} twice")
            self._own = blob
        self._publish(blob)

    def get(self, key: str) -> bytes:
        """Return the blob of the rank that ``key`` names, once it is there."""
        rank = self._rank_in(key)
        with self._changed:
            while True:
                if self._failure:
                    raise WorldError(self._failure)
                if self._blobs is not None:
                    return self._blobs[rank]
                if rank == self._rank and self._own is not None:
                    return self._own
                left_s = self._deadline_at - time.monotonic()
                if left_s <= 0:
                    raise WorldError("the other members' addresses did not come in time")
                self._changed.wait(left_s)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Return once all ``keys`` can be got; the formation's own deadline counts, not ``timeout``."""
        for key in keys:
            self.get(key)

    def deliver(self, blobs: tuple[bytes, ...]) -> None:
        """Take every rank's blob, in rank order; a list that cannot be this world's fails the formation."""
        with self._changed:
            if self._blobs is not None or self._failure:
                return
            if len(blobs) != self._size or any(not 0 < len(blob) <= BLOB_MAX_BYTES for blob in blobs):
                self._failure = (
                    f"got {len(blobs)} address blobs, or one out of bounds, for {self._size} ranks"
                )
            elif blobs[self._rank] != self._own:
                self._failure = f"the address blobs carry another blob for rank {self._rank} than it sent"
            else:
                self._blobs = blobs
            self._changed.notify_all()

    def fail(self, reason: str) -> None:
        """End whoever waits now or later, at once, with ``reason``."""
        with self._changed:
            self._failure = self._failure or reason
            self._changed.notify_all()

    def _rank_in(self, key: str) -> int:
        """Return the rank in gloo's key ``0/RANK``."""
        prefix, _, rank = key.partition("/")
        if prefix != "0" or not rank.isdecimal() or int(rank) >= self._size:
            raise WorldError(f"gloo asked for the unknown key {key!r}")
        return int(rank)
