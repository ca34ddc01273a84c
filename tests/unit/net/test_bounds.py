"""The bounds that keep strangers and slow peers from costing us anything much."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daisychain.core.ids import Generation, NodeId, Term
from daisychain.core.messages import Goodbye, HeartbeatAck, Message, OfferBlob
from daisychain.errors import ProtocolError
from daisychain.net.links.framing import LinkSecrets, Opener, Sealer
from daisychain.net.links.handshake import close_reason
from daisychain.net.links.limits import Gate, GateSettings, TokenBucket
from daisychain.net.links.outbox import Outbox
from daisychain.net.links.refusals import LINES_MAX, SOURCES_MAX, RefusalLog, printable
from support.chain_node import heartbeat

NODE = NodeId("a" * 32)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_source_is_told_of_once_a_minute_with_what_was_left_out() -> None:
    lines: list[str] = []
    clock = Clock()
    log = RefusalLog(lines.append, clock)
    for _ in range(500):
        log.refuse("10.0.0.5", "no certificate")
    log.refuse("10.0.0.6", "garbage")
    clock.now += 59.9
    log.refuse("10.0.0.5", "no certificate")
    assert lines == ["refused 10.0.0.5: no certificate", "refused 10.0.0.6: garbage"]
    clock.now += 0.2
    log.refuse("10.0.0.5", "plain HTTP")
    assert lines[2:] == ["refused 10.0.0.5: plain HTTP (and 500 more since the last line)"]
    assert log.total == 503


def test_many_sources_fill_neither_log_nor_memory() -> None:
    lines: list[str] = []
    clock = Clock()
    log = RefusalLog(lines.append, clock)
    for minute in range(20):
        clock.now = 100.0 + 60.0 * minute
        for i in range(1000):
            log.refuse(f"2001:db8::{minute}:{i:x}", "garbage")
    assert len(lines) == 20 * LINES_MAX
    assert len(log._sources) <= SOURCES_MAX


def test_what_a_stranger_says_cannot_forge_log_lines() -> None:
    lines: list[str] = []
    RefusalLog(lines.append, Clock()).refuse("10.0.0.5", "x\nroot: all is well\x1b[2J" + "y" * 1000)
    (line,) = lines
    assert line.isprintable()
    assert len(line) < 250
    assert printable("plain") == "plain"


def test_a_refusal_fits_into_a_close_frame() -> None:
    assert close_reason("kein Schlüssel\n") == b"kein Schl?ssel?"
    assert len(close_reason("é" * 500)) <= 123


def test_a_bucket_lets_the_rate_pass_and_no_more() -> None:
    bucket = TokenBucket(rate=10.0, burst=5.0, now=0.0)
    assert [bucket.try_take(1.0, 0.0) for _ in range(6)] == [True] * 5 + [False]
    assert not bucket.try_take(1.0, 0.09)
    assert bucket.try_take(1.0, 0.2)
    waits = TokenBucket(rate=10.0, burst=5.0, now=0.0)
    assert [waits.take(1.0, 0.0) for _ in range(7)] == [0.0] * 5 + [pytest.approx(0.1), pytest.approx(0.2)]
    assert waits.take(1.0, 60.0) == 0.0


def test_the_gate_holds_each_source_and_all_together() -> None:
    gate = Gate(GateSettings(pending_max=5, pending_per_source=3, attempts_burst=4))
    assert [gate.enter("a", 0.0) for _ in range(3)] == [None] * 3
    assert gate.enter("a", 0.0) == "more than 3 connections that prove no node id"
    gate.leave("a")
    assert gate.enter("a", 0.0) == "more than 10 connections a second"
    assert gate.enter("a", 1.0) is None
    assert [gate.enter("b", 0.0) for _ in range(3)] == [
        None,
        None,
        "5 connections already wait to prove who they are",
    ]
    for source in "aaabb":
        gate.leave(source)
    assert gate.pending == 0


def test_the_gate_remembers_a_bounded_number_of_sources() -> None:
    gate = Gate(GateSettings())
    for i in range(5000):
        assert gate.enter(f"source {i}", 0.0) is None
        gate.leave(f"source {i}")
    assert len(gate._attempts) == 1024


def ends(dialler: str = "a", acceptor: str = "b", nonce: int = 1) -> LinkSecrets:
    return LinkSecrets(
        NodeId(dialler * 32), NodeId(acceptor * 32), bytes([nonce] * 16), bytes([nonce + 1] * 16)
    )


@given(st.lists(st.binary(max_size=64), max_size=20))
def test_frames_pass_once_and_in_order(messages: list[bytes]) -> None:
    tag = ends().tag(from_dialler=True)
    sealer, opener = Sealer(tag), Opener(tag)
    frames = [sealer.seal(message) for message in messages]
    assert [opener.open(frame) for frame in frames] == messages
    for frame in frames:
        with pytest.raises(ProtocolError, match="replayed"):
            opener.open(frame)


@pytest.mark.parametrize(
    "other",
    [
        ends().tag(from_dialler=False),
        ends(nonce=7).tag(from_dialler=True),
        ends(dialler="c").tag(from_dialler=True),
        ends(acceptor="c").tag(from_dialler=True),
        bytes(16),
    ],
)
def test_a_frame_of_any_other_link_or_direction_is_refused(other: bytes) -> None:
    frame = Sealer(other).seal(b"message")
    with pytest.raises(ProtocolError, match="not made for this link"):
        Opener(ends().tag(from_dialler=True)).open(frame)


def test_a_refused_frame_does_not_move_the_count() -> None:
    tag = ends().tag(from_dialler=True)
    opener = Opener(tag)
    with pytest.raises(ProtocolError):
        opener.open(b"short")
    with pytest.raises(ProtocolError):
        opener.open(Sealer(bytes(16)).seal(b""))
    assert opener.open(Sealer(tag).seal(b"first")) == b"first"


def blob(rank: int) -> OfferBlob:
    return OfferBlob(Generation(Term(1, NODE), 1, 1), rank, b"")


def drain(outbox: Outbox) -> list[bytes]:
    async def take() -> list[bytes]:
        outbox.finish()
        taken = []
        while (data := await outbox.next()) is not None:
            taken.append(data)
        return taken

    return asyncio.run(take())


def fill(outbox: Outbox, *named: tuple[Message, bytes]) -> None:
    for message, data in named:
        outbox.put(message, data)


def test_a_full_queue_drops_the_oldest_heartbeat_first() -> None:
    outbox = Outbox(max_messages=3, max_bytes=1000)
    fill(outbox, (blob(0), b"blob 0"), (heartbeat(1, NODE), b"beat 1"), (HeartbeatAck(1), b"ack 1"))
    fill(outbox, (heartbeat(2, NODE), b"beat 2"), (blob(1), b"blob 1"))
    assert outbox.dropped == 2
    assert drain(outbox) == [b"blob 0", b"beat 2", b"blob 1"]


def test_without_heartbeats_the_oldest_goes_and_never_the_newest() -> None:
    outbox = Outbox(max_messages=2, max_bytes=1000)
    fill(outbox, *((blob(rank), b"blob %d" % rank) for rank in range(5)))
    fill(outbox, (heartbeat(1, NODE), b"beat"))
    assert drain(outbox) == [b"blob 4", b"beat"]


def test_the_queue_is_bounded_in_bytes_and_one_large_message_still_passes() -> None:
    outbox = Outbox(max_messages=100, max_bytes=10)
    fill(outbox, (blob(0), b"12345"), (blob(1), b"12345"), (blob(2), b"x"))
    assert (len(outbox), outbox.bytes_waiting) == (2, 6)
    fill(outbox, (blob(3), b"y" * 50))
    assert (len(outbox), outbox.bytes_waiting) == (1, 50)
    assert drain(outbox) == [b"y" * 50]


def test_nothing_is_taken_after_the_end() -> None:
    outbox = Outbox(max_messages=3, max_bytes=100)
    fill(outbox, (Goodbye(1, "x"), b"goodbye"))
    outbox.finish()
    fill(outbox, (blob(0), b"late"))
    assert drain(outbox) == [b"goodbye"]
    assert outbox.dropped == 1
