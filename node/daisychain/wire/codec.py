"""Messages, orders and reports to and from bytes: MessagePack, versioned, bounded, strict.

An envelope is ``[WIRE_VERSION, kind, payload]``: ``kind`` is the dataclass's name. Unknown kinds,
unknown versions, wrong types, numbers that are not finite and anything oversized raise
`ProtocolError`; decoding never runs code and never allocates more than the input's own size allows.
"""

from __future__ import annotations

import math
from typing import Any, Generic, TypeVar, get_args

import msgspec

from daisychain.core.messages import Message
from daisychain.core.orders import Order
from daisychain.core.reports import Report
from daisychain.errors import ProtocolError

WIRE_VERSION = 1
"""Raised whenever an older reader would misread a message; nodes of different versions stand by."""

MESSAGE_MAX_BYTES = 1 << 20
"""Largest message accepted: 32 blobs of 16 KiB, or 256 job cards, with room to spare."""

T = TypeVar("T")


class Codec(Generic[T]):
    """Encodes and decodes the members of one closed union of dataclasses."""

    def __init__(self, union: Any, max_bytes: int = MESSAGE_MAX_BYTES) -> None:
        self._decoders: dict[str, msgspec.msgpack.Decoder[Any]] = {
            kind.__name__: msgspec.msgpack.Decoder(kind, strict=True) for kind in get_args(union)
        }
        self._encoder = msgspec.msgpack.Encoder()
        self._envelope = msgspec.msgpack.Decoder(tuple[int, str, msgspec.Raw])
        self._max_bytes = max_bytes

    def encode(self, message: T) -> bytes:
        """Return the envelope of ``message``; raises `ProtocolError` when it is oversized."""
        kind = type(message).__name__
        if kind not in self._decoders:
            raise ProtocolError(f"a {kind} does not belong to this protocol")
        payload = msgspec.Raw(self._encoder.encode(message))
        data = self._encoder.encode((WIRE_VERSION, kind, payload))
        if len(data) > self._max_bytes:
            raise ProtocolError(f"a {kind} of {len(data)} bytes is over the limit of {self._max_bytes}")
        return data

    def decode(self, data: bytes) -> T:
        """Return the message in ``data``; raises `ProtocolError` for anything but an honest one."""
        if len(data) > self._max_bytes:
            raise ProtocolError(f"a message of {len(data)} bytes is over the limit of {self._max_bytes}")
        try:
            version, kind, payload = self._envelope.decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise ProtocolError(f"not a message: {error}") from None
        if version != WIRE_VERSION:
            raise ProtocolError(
                f"the sender speaks wire version {version}, this node {WIRE_VERSION}",
                "Install the same DaisyChain version on every node.",
            )
        decoder = self._decoders.get(kind)
        if decoder is None:
            raise ProtocolError(f"unknown kind of message {kind[:40]!r}")
        try:
            message: T = decoder.decode(payload)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError) as error:
            raise ProtocolError(f"a malformed {kind}: {error}") from None
        _finite(message, kind)
        return message


def _finite(value: object, kind: str) -> None:
    """Refuse NaN and infinities: no decision of the core is meant to meet them."""
    match value:
        case str() | int() | bytes() | None:
            return
        case float():
            if not math.isfinite(value):
                raise ProtocolError(f"a {kind} with a number that is not finite")
        case tuple():
            for item in value:
                _finite(item, kind)
        case _:
            for name in getattr(value, "__dataclass_fields__", ()):
                _finite(getattr(value, name), kind)


PEER_CODEC: Codec[Message] = Codec(Message)
"""Between nodes."""

ORDER_CODEC: Codec[Order] = Codec(Order)
"""From an agent to its trainer."""

REPORT_CODEC: Codec[Report] = Codec(Report)
"""From a trainer to its agent."""
