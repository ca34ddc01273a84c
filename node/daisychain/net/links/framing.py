"""Frames of one link: bound to it, numbered from 0, so that none can be repeated or moved.

TLS keeps strangers out of a link; this keeps a frame from being honoured twice or elsewhere,
whatever software sits between the two ends. A frame is ``tag (16 bytes) | number (8, big-endian)
| message``. The tag is a hash of both sides' random nonces, both node ids and the direction,
so it differs for every link and for its two directions. It is no authenticator: TLS is.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from daisychain.core.ids import NodeId
from daisychain.errors import ProtocolError
from daisychain.wire.codec import MESSAGE_MAX_BYTES

NONCE_BYTES = 16
_HEADER = struct.Struct("!16sQ")

FRAME_MAX_BYTES = MESSAGE_MAX_BYTES + _HEADER.size
"""Largest frame accepted; the websocket refuses a longer one at its length field, unallocated."""


@dataclass(frozen=True, slots=True)
class LinkSecrets:
    """What the two ends of one link know: who they are and the nonces that each drew for it."""

    dialler: NodeId
    acceptor: NodeId
    dialler_nonce: bytes
    acceptor_nonce: bytes

    def tag(self, *, from_dialler: bool) -> bytes:
        """Return what marks the frames of this link in one direction."""
        parts = (
            b"daisychain 1 link",
            b"dialler" if from_dialler else b"acceptor",
            self.dialler.encode(),
            self.acceptor.encode(),
            self.dialler_nonce,
            self.acceptor_nonce,
        )
        return hashlib.sha256(b"|".join(len(part).to_bytes(2, "big") + part for part in parts)).digest()[:16]


class Sealer:
    """Numbers and marks the frames of one direction."""

    def __init__(self, tag: bytes) -> None:
        self._tag = tag
        self._next = 0

    def seal(self, message: bytes) -> bytes:
        """Return the next frame."""
        frame = _HEADER.pack(self._tag, self._next) + message
        self._next += 1
        return frame


class Opener:
    """Takes the frames of one direction, each exactly once and in order."""

    def __init__(self, tag: bytes) -> None:
        self._tag = tag
        self._next = 0

    def open(self, frame: bytes) -> bytes:
        """Return the message in ``frame``; raises `ProtocolError` for any but the next one of this link."""
        if len(frame) < _HEADER.size:
            raise ProtocolError(f"a frame of {len(frame)} bytes, shorter than its header")
        tag, number = _HEADER.unpack_from(frame)
        if tag != self._tag:
            raise ProtocolError("a frame that was not made for this link (replayed from another?)")
        if number != self._next:
            what = "replayed" if number < self._next else "out of order"
            raise ProtocolError(f"frame {number} where {self._next} was due: {what}")
        self._next += 1
        return frame[_HEADER.size :]
