"""Length-prefixed frames on a byte stream (the socket pair of agent and trainer)."""

from __future__ import annotations

import struct

from daisychain.errors import ProtocolError
from daisychain.wire.codec import MESSAGE_MAX_BYTES

_HEADER = struct.Struct("!I")


def frame(payload: bytes) -> bytes:
    """Return ``payload`` behind its length as four big-endian bytes."""
    return _HEADER.pack(len(payload)) + payload


class FrameReader:
    """Cuts a stream of bytes into frames; holds at most one frame and what was fed with it."""

    def __init__(self, max_bytes: int = MESSAGE_MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the payloads that ``data`` completes; raises `ProtocolError` for an oversized one."""
        self._buffer += data
        payloads: list[bytes] = []
        while len(self._buffer) >= _HEADER.size:
            (length,) = _HEADER.unpack_from(self._buffer)
            if length > self._max_bytes:
                raise ProtocolError(f"a frame of {length} bytes is over the limit of {self._max_bytes}")
            end = _HEADER.size + length
            if len(self._buffer) < end:
                break
            payloads.append(bytes(self._buffer[_HEADER.size : end]))
            del self._buffer[:end]
        return payloads
