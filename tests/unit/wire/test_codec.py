"""Every message survives the wire; everything else is a ProtocolError and nothing worse."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from enum import EnumType
from typing import Any, NewType, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daisychain.core.ids import Generation, NodeId, Term
from daisychain.core.messages import Goodbye, Heartbeat, HeartbeatAck, Message, OfferBlob, PlanWorld
from daisychain.core.orders import Order, Ping
from daisychain.core.reports import Progress, Report
from daisychain.errors import ProtocolError
from daisychain.wire.codec import (
    MESSAGE_MAX_BYTES,
    ORDER_CODEC,
    PEER_CODEC,
    REPORT_CODEC,
    WIRE_VERSION,
    Codec,
)

PLAIN: dict[object, st.SearchStrategy[Any]] = {
    int: st.integers(-(1 << 63), (1 << 63) - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    str: st.text(max_size=20),
    bytes: st.binary(max_size=40),
    type(None): st.none(),
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy of all values of a type that messages are made of."""
    if isinstance(kind, NewType):
        return values(kind.__supertype__)
    if kind in PLAIN:
        return PLAIN[kind]
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        return st.builds(kind, **{field.name: values(hints[field.name]) for field in fields(kind)})
    if isinstance(kind, EnumType):
        return st.sampled_from(list(kind))
    if get_origin(kind) is tuple:
        return st.lists(values(get_args(kind)[0]), max_size=3).map(tuple)
    return st.one_of([values(member) for member in get_args(kind)])


CODECS: list[tuple[Codec[Any], type]] = [
    (codec, kind)
    for codec, union in ((PEER_CODEC, Message), (ORDER_CODEC, Order), (REPORT_CODEC, Report))
    for kind in get_args(union)
]
KINDS = pytest.mark.parametrize(("codec", "kind"), CODECS, ids=[kind.__name__ for _, kind in CODECS])


@KINDS
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_every_kind_comes_back_as_it_was(codec: Codec[Any], kind: type, data: st.DataObject) -> None:
    message = data.draw(values(kind))
    assert codec.decode(codec.encode(message)) == message


@KINDS
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_no_truncated_message_is_taken(codec: Codec[Any], kind: type, data: st.DataObject) -> None:
    encoded = codec.encode(data.draw(values(kind)))
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(ProtocolError):
        codec.decode(encoded[:cut])


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(ProtocolError):
        PEER_CODEC.decode(garbage)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_message_is_refused_or_another_whole_message(data: st.DataObject) -> None:
    encoded = bytearray(PEER_CODEC.encode(Goodbye(3, "done")))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        message = PEER_CODEC.decode(bytes(encoded))
    except ProtocolError:
        return
    assert isinstance(message, get_args(Message))


def envelope(version: int, kind: str, payload: object) -> bytes:
    return msgspec.msgpack.encode((version, kind, payload))


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (envelope(WIRE_VERSION + 1, "Goodbye", {"incarnation": 1, "reason": "x"}), "same DaisyChain version"),
        (envelope(WIRE_VERSION, "Shutdown", {"reason": "x"}), "unknown kind"),
        (envelope(WIRE_VERSION, "Goodbye", {"incarnation": "1", "reason": "x"}), "malformed Goodbye"),
        (envelope(WIRE_VERSION, "Goodbye", {"reason": "x"}), "malformed Goodbye"),
        (envelope(WIRE_VERSION, "HeartbeatAck", {"seq": 1.5}), "malformed HeartbeatAck"),
        (msgspec.msgpack.encode({"kind": "Goodbye"}), "not a message"),
        (b"", "not a message"),
        (b"\x91" * 100_000, "not a message"),
    ],
)
def test_what_no_honest_sender_sends_is_named(data: bytes, word: str) -> None:
    with pytest.raises(ProtocolError, match=word):
        PEER_CODEC.decode(data)


def test_the_job_of_one_codec_is_not_the_others() -> None:
    with pytest.raises(ProtocolError, match="unknown kind"):
        PEER_CODEC.decode(ORDER_CODEC.encode(Ping(1)))
    with pytest.raises(ProtocolError, match="does not belong"):
        PEER_CODEC.encode(Ping(1))  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused_wherever_they_are(number: float) -> None:
    generation = Generation(Term(1, NodeId("a")), 1, 1)
    progress = Progress(generation, 1, 1, 1, 0, number, 1, 0.1, (1,), 1.0)
    with pytest.raises(ProtocolError, match="not finite"):
        REPORT_CODEC.decode(REPORT_CODEC.encode(progress))
    nested = {
        "generation": {"term": {"number": 1, "node_id": "a"}, "counter": 1, "nonce": 1},
        "run_id": "r",
        "reason": "",
        "members": [
            {"node_id": "a", "name": "a", "host": "h", "capacity": {"fixed_s": 0.0, "per_unit_s": number}}
        ],
    }
    with pytest.raises(ProtocolError, match="not finite"):
        PEER_CODEC.decode(envelope(WIRE_VERSION, PlanWorld.__name__, {"plan": nested}))


def test_oversized_messages_are_refused_both_ways() -> None:
    generation = Generation(Term(1, NodeId("a")), 1, 1)
    with pytest.raises(ProtocolError, match="over the limit"):
        PEER_CODEC.encode(OfferBlob(generation, 0, b"x" * MESSAGE_MAX_BYTES))
    with pytest.raises(ProtocolError, match="over the limit"):
        PEER_CODEC.decode(b"x" * (MESSAGE_MAX_BYTES + 1))


def test_an_acknowledgement_is_small() -> None:
    assert len(PEER_CODEC.encode(HeartbeatAck(1 << 40))) < 64
    assert Heartbeat in get_args(Message)
