"""A holder of the key that breaks the protocol: its link ends, nothing of it is heard, no other notices."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import psutil
import pytest

from daisychain.core.events import CandidateSeen, DialFailed, InboundLost, LinkDown, LinkUp, Received
from daisychain.core.messages import Heartbeat, Hello, Message
from daisychain.net.identity.cluster_key import ClusterKey
from daisychain.net.links.handshake import REFUSAL_HEADER
from daisychain.net.links.limits import GateSettings
from daisychain.net.links.transport import TransportSettings
from daisychain.wire.codec import MESSAGE_MAX_BYTES, PEER_CODEC, WIRE_VERSION
from support.async_waiting import until_async
from support.chain_node import ChainNode, heartbeat, running, undisturbed
from support.raw_link import BINARY, PING, TEXT, Intruder, RawLink

pytestmark = pytest.mark.integration

KEY = ClusterKey(bytes(range(20)))
DEADLINE_S = 10.0
EAGER = TransportSettings(gate=GateSettings(attempts_per_source_per_s=1e6, attempts_burst=1e6))
"""Without the limit on connection attempts: these tests make many on purpose."""

Attack = Callable[[RawLink, Intruder], Awaitable[None]]


def misbehave(tmp_path: Path, attack: Attack) -> str:
    """Open an honest link, then attack on it; return the reason that the node gave and logged."""

    async def scenario() -> str:
        honest, target = ChainNode(tmp_path, "honest", KEY), ChainNode(tmp_path, "target", KEY)
        intruder = Intruder(tmp_path, "intruder", KEY)
        async with running(honest, target), undisturbed(honest, target):
            link = await intruder.linked(target.address)
            link.say(heartbeat(0, intruder.identity.node_id))
            before = await received_from(target, intruder, 1)
            await attack(link, intruder)
            said = await link.sent_away()
            await until_async(lambda: target.refusals.total == 1, DEADLINE_S, "it was not refused")
            lost = InboundLost(intruder.identity.node_id, reset=False)
            await until_async(lambda: lost in target.events, DEADLINE_S, "its link did not end")
            assert await received_from(target, intruder, 1) == before, "something of it was heard"
        (line,) = target.refused
        assert line.startswith("refused 127.0.0.1: ")
        reason = line.removeprefix("refused 127.0.0.1: ")
        assert said in ("", reason.encode("ascii", "replace").decode()[:120])
        return reason

    return asyncio.run(scenario())


async def received_from(node: ChainNode, intruder: Intruder, count: int) -> list[Message]:
    def heard() -> list[Message]:
        return [e.message for e in node.of(Received) if e.node_id == intruder.identity.node_id]

    await until_async(lambda: len(heard()) >= count, DEADLINE_S, "the honest part was not heard")
    return heard()


def test_a_frame_replayed_on_its_own_link(tmp_path: Path) -> None:
    async def attack(link: RawLink, intruder: Intruder) -> None:
        # The heartbeat of `misbehave` was frame 1; seal it again exactly as it was.
        link.sealer._next = 1
        link.say(heartbeat(0, intruder.identity.node_id))

    assert misbehave(tmp_path, attack) == "frame 1 where 2 was due: replayed"


def test_a_frame_replayed_on_a_new_link(tmp_path: Path) -> None:
    async def scenario() -> None:
        target = ChainNode(tmp_path, "target", KEY)
        intruder = Intruder(tmp_path, "intruder", KEY)
        async with running(target):
            first = await intruder.linked(target.address)
            captured = first.say(heartbeat(0, intruder.identity.node_id))
            await received_from(target, intruder, 1)
            first.drop()
            await target.next(InboundLost)
            second = await intruder.linked(target.address)
            second.put(captured)  # its number, 1, is the one due
            assert "not made for this link" in await second.sent_away()
            assert len(await received_from(target, intruder, 1)) == 1

    asyncio.run(scenario())


def test_frames_out_of_order(tmp_path: Path) -> None:
    async def attack(link: RawLink, intruder: Intruder) -> None:
        messages = [heartbeat(seq, intruder.identity.node_id) for seq in (1, 2)]
        first, second = (link.sealer.seal(PEER_CODEC.encode(message)) for message in messages)
        link.put(second)
        link.put(first)

    assert misbehave(tmp_path, attack) == "frame 3 where 2 was due: out of order"


def test_a_truncated_frame(tmp_path: Path) -> None:
    async def attack(link: RawLink, intruder: Intruder) -> None:
        link.put(b"\x00" * 23)

    assert misbehave(tmp_path, attack) == "a frame of 23 bytes, shorter than its header"


def test_a_truncated_message(tmp_path: Path) -> None:
    async def attack(link: RawLink, intruder: Intruder) -> None:
        message = PEER_CODEC.encode(heartbeat(1, intruder.identity.node_id))
        link.put(link.sealer.seal(message[:-1]))

    assert misbehave(tmp_path, attack).startswith("not a message: ")


def test_a_frame_cut_off_by_the_connections_end(tmp_path: Path) -> None:
    """The half frame is not heard, and a lost connection is no offence."""

    async def scenario() -> None:
        target = ChainNode(tmp_path, "target", KEY)
        intruder = Intruder(tmp_path, "intruder", KEY)
        async with running(target):
            link = await intruder.linked(target.address)
            link.put(link.sealer.seal(b"half"), claimed=1000)
            await link.writer.drain()
            link.writer.close()
            assert await target.next(InboundLost) == InboundLost(intruder.identity.node_id, reset=True)
            assert target.of(Received) == []
            assert target.refused == []

    asyncio.run(scenario())


@pytest.mark.parametrize("claimed", [MESSAGE_MAX_BYTES + 25, 1 << 31, (1 << 63) - 1, (1 << 64) - 1])
def test_an_oversized_frame_is_refused_at_its_header(tmp_path: Path, claimed: int) -> None:
    async def attack(link: RawLink, intruder: Intruder) -> None:
        link.put(b"", claimed=claimed)  # no byte of the payload follows

    assert "exceeds limit" in misbehave(tmp_path, attack)


def test_the_largest_message_passes(tmp_path: Path) -> None:
    """The bound of the frame leaves room for the largest message that the codec makes."""

    async def attack(link: RawLink, intruder: Intruder) -> None:
        link.put(link.sealer.seal(b"\xc1" * MESSAGE_MAX_BYTES))  # refused by the codec, not for its size

    assert misbehave(tmp_path, attack).startswith("not a message: ")


def test_fragments_cannot_add_up_to_more_than_the_bound(tmp_path: Path) -> None:
    async def attack(link: RawLink, intruder: Intruder) -> None:
        half = bytes(MESSAGE_MAX_BYTES // 2 + 100)
        link.writer.write(struct.pack("!BBQ4s", BINARY, 0x80 | 127, len(half), bytes(4)) + half)
        link.writer.write(struct.pack("!BBQ4s", 0, 0x80 | 127, len(half), bytes(4)) + half)

    assert "exceeds limit" in misbehave(tmp_path, attack)


@pytest.mark.parametrize(("opcode", "named"), [(TEXT, "TEXT"), (PING, "PING"), (3, "Unexpected opcode")])
def test_messages_that_no_node_sends(tmp_path: Path, opcode: int, named: str) -> None:
    async def attack(link: RawLink, intruder: Intruder) -> None:
        link.put(b"hello", opcode)

    assert named in misbehave(tmp_path, attack)


def test_compressed_frames(tmp_path: Path) -> None:
    """Compression is never agreed upon: a few bytes cannot unfold to gigabytes."""

    async def attack(link: RawLink, intruder: Intruder) -> None:
        link.put(b"\x00" * 30, 0x40 | BINARY)

    assert "reserved bits" in misbehave(tmp_path, attack)


def test_a_second_hello(tmp_path: Path) -> None:
    async def attack(link: RawLink, intruder: Intruder) -> None:
        link.say(Hello(intruder.info))

    assert misbehave(tmp_path, attack) == "a second Hello on one link"


def test_numbers_that_are_not_finite(tmp_path: Path) -> None:
    async def attack(link: RawLink, intruder: Intruder) -> None:
        good = PEER_CODEC.encode(Hello(intruder.info))
        version, kind, payload = msgspec.msgpack.decode(good)
        payload["info"]["cores"] = float("nan")
        link.put(link.sealer.seal(msgspec.msgpack.encode((version, kind, payload))))

    assert misbehave(tmp_path, attack).startswith("a malformed Hello")


def before_hello(tmp_path: Path, attack: Attack) -> tuple[str, str]:
    """Attack on an upgraded connection that has said no Hello; return what it and the log were told."""

    async def scenario() -> tuple[str, str]:
        target = ChainNode(tmp_path, "target", KEY)
        intruder = Intruder(tmp_path, "intruder", KEY)
        async with running(target):
            link = await intruder.upgraded(target.address)
            assert link.status == 101
            await attack(link, intruder)
            said = await link.sent_away()
            await until_async(lambda: target.refusals.total == 1, DEADLINE_S, "it was not refused")
            assert target.events == []
        (line,) = target.refused
        return said, line

    return asyncio.run(scenario())


def test_a_hello_with_another_nodes_id(tmp_path: Path) -> None:
    async def attack(link: RawLink, intruder: Intruder) -> None:
        link.say(intruder.as_node(ChainNode(tmp_path, "victim", KEY).node_id))

    said, line = before_hello(tmp_path, attack)
    assert "a node that proved to be" in said
    assert "calls itself" in line


def test_a_heartbeat_before_the_hello(tmp_path: Path) -> None:
    async def attack(link: RawLink, intruder: Intruder) -> None:
        link.say(heartbeat(0, intruder.identity.node_id))

    said, _ = before_hello(tmp_path, attack)
    assert said == "a link that begins with a Heartbeat instead of a Hello"


def test_a_message_of_another_wire_version(tmp_path: Path) -> None:
    """An envelope of another version is named even when the handshake did not tell of it."""

    async def attack(link: RawLink, intruder: Intruder) -> None:
        link.put(link.sealer.seal(msgspec.msgpack.encode((WIRE_VERSION + 1, "Hello", {}))))

    said, _ = before_hello(tmp_path, attack)
    assert said.startswith(f"the sender speaks wire version {WIRE_VERSION + 1}, this node {WIRE_VERSION}")


@pytest.mark.parametrize(
    ("wire", "path", "status", "said"),
    [
        (
            WIRE_VERSION + 1,
            "/chain",
            426,
            f"it speaks wire version {WIRE_VERSION + 1}, this node {WIRE_VERSION}",
        ),
        (WIRE_VERSION, "/metrics", 400, "no DaisyChain handshake (GET /metrics)"),
    ],
)
def test_upgrades_that_are_refused(tmp_path: Path, wire: int, path: str, status: int, said: str) -> None:
    async def scenario() -> None:
        target = ChainNode(tmp_path, "target", KEY)
        intruder = Intruder(tmp_path, "intruder", KEY)
        async with running(target):
            link = await intruder.upgraded(target.address, wire=wire, path=path)
            assert link.status == status
            assert link.headers[REFUSAL_HEADER].startswith(said)
            await link.sent_away()
            await until_async(lambda: target.refusals.total == 1, DEADLINE_S, "it was not refused")
            assert target.events == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\x01\x02 garbage in place of HTTP\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /chain HTTP/1.1\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
        b"POST /chain HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
    ],
)
def test_garbage_after_the_tls_handshake(tmp_path: Path, garbage: bytes) -> None:
    async def scenario() -> None:
        honest, target = ChainNode(tmp_path, "honest", KEY), ChainNode(tmp_path, "target", KEY)
        intruder = Intruder(tmp_path, "intruder", KEY)
        async with running(honest, target), undisturbed(honest, target):
            for _ in range(3):
                reader, writer = await intruder.tls(target.address)
                writer.write(garbage)
                try:
                    async with asyncio.timeout(DEADLINE_S):
                        assert len(await reader.read()) < 1000
                except ConnectionError:
                    pass
                writer.transport.abort()
            await until_async(lambda: target.refusals.total == 3, DEADLINE_S, "not all were refused")
        (line,) = target.refused
        assert "no DaisyChain handshake" in line
        assert len(line) < 300

    asyncio.run(scenario())


def test_a_version_skewed_node_is_named_by_the_dialler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> DialFailed:
        old, new = ChainNode(tmp_path, "old", KEY), ChainNode(tmp_path, "new", KEY)
        async with running(old, new):
            # What the dialler offers is that of a newer version; the listener is as it was.
            monkeypatch.setattr(
                "daisychain.net.links.dialler.offer", lambda nonce: {**offer(nonce), WIRE: "2"}
            )
            return await new.refused_by(old.address)

    from daisychain.net.links.handshake import WIRE_HEADER as WIRE
    from daisychain.net.links.handshake import offer

    failed = asyncio.run(scenario())
    assert not failed.refused
    assert "it speaks wire version 2, this node 1: install the same DaisyChain version" in failed.reason


def test_a_node_holds_one_link_to_us(tmp_path: Path) -> None:
    """A newer link of a node ends its former one, on which nothing is heard any more."""

    async def scenario() -> None:
        target = ChainNode(tmp_path, "target", KEY)
        intruder = Intruder(tmp_path, "intruder", KEY)
        async with running(target):
            former = await intruder.linked(target.address)
            newer = await intruder.linked(target.address)
            former.say(heartbeat(1, intruder.identity.node_id))
            assert await former.sent_away() == "replaced by a newer link"
            newer.say(heartbeat(2, intruder.identity.node_id))
            assert await received_from(target, intruder, 1) == [heartbeat(2, intruder.identity.node_id)]
            assert not target.of(InboundLost)
            assert not target.refused
            newer.drop()
            assert await target.next(InboundLost) == InboundLost(intruder.identity.node_id, reset=True)

    asyncio.run(scenario())


def test_a_peer_that_speaks_on_a_link_that_is_ours(tmp_path: Path) -> None:
    """The acceptor has nothing to say after its Hello; a dialler drops a link on which it does."""

    async def scenario() -> None:
        a, b = ChainNode(tmp_path, "a", KEY), ChainNode(tmp_path, "b", KEY)
        async with running(a, b):
            await a.link_to(b)
            (guest,) = b.transport._acceptor._guests
            assert guest.websocket is not None
            await guest.websocket.send_bytes(b"anything")
            down = await a.next(LinkDown)
            assert down == LinkDown(b.node_id, False, "it spoke on a link on which only this node speaks")
            assert a.refused == [f"refused 127.0.0.1: {down.reason}"]
            assert a.of(Received) == []

    asyncio.run(scenario())


def test_a_flood_is_read_no_faster_than_the_rate_and_starves_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = replace(EAGER, messages_per_s=50.0, messages_burst=20.0)
        honest, target = ChainNode(tmp_path, "honest", KEY), ChainNode(tmp_path, "target", KEY, settings)
        intruder = Intruder(tmp_path, "intruder", KEY)
        async with running(honest, target):
            link = await intruder.linked(target.address)
            loop = asyncio.get_running_loop()
            started = loop.time()
            for seq in range(2000):
                link.say(heartbeat(seq, intruder.identity.node_id))
            await honest.link_to(target)
            honest.transport.send(target.node_id, heartbeat(7, honest.node_id))
            await until_async(
                lambda: Received(honest.node_id, heartbeat(7, honest.node_id)) in target.events,
                DEADLINE_S,
                "an honest heartbeat waits behind the flood",
            )
            heard = await received_from(target, intruder, 60)
            assert loop.time() - started >= (len(heard) - 20) / 50.0 - 0.05
            link.drop()

    asyncio.run(scenario())


FUZZ_ROUNDS = 1000


def test_a_thousand_random_payloads_change_nothing(tmp_path: Path) -> None:
    """Seeded garbage on authenticated links: refused each time, one line logged, no resource kept."""
    source = random.Random(20261)

    def garbage() -> bytes:
        return source.randbytes(source.choice([0, 1, 7, 23, 24, 25, 100, 1000, 20_000]))

    async def one(intruder: Intruder, target: ChainNode) -> None:
        link = await intruder.linked(target.address)
        match source.randrange(5):
            case 0:  # a websocket frame of anything
                link.put(garbage())
            case 1:  # an honest frame around anything
                link.put(link.sealer.seal(garbage()))
            case 2:  # an honest envelope around anything
                kind = source.choice(["Heartbeat", "PlanWorld", "SpreadBlobs", "Nonsense", ""])
                link.put(link.sealer.seal(msgspec.msgpack.encode((WIRE_VERSION, kind, garbage()))))
            case 3:  # an honest heartbeat, cut
                data = PEER_CODEC.encode(heartbeat(1, intruder.identity.node_id))
                link.put(link.sealer.seal(data[: source.randrange(len(data))]))
            case _:  # no websocket frame at all: reserved bits set, then anything
                link.writer.write(bytes([0xF0 | source.randrange(16)]) + garbage() + bytes(20))
        await link.sent_away()

    async def scenario() -> None:
        honest, target = ChainNode(tmp_path, "honest", KEY), ChainNode(tmp_path, "target", KEY, EAGER)
        intruders = [Intruder(tmp_path, f"intruder {i}", KEY) for i in range(4)]
        process = psutil.Process()

        async def assault(rounds: int) -> None:
            for _ in range(rounds // len(intruders)):
                await asyncio.gather(*(one(intruder, target) for intruder in intruders))

        async with running(honest, target), undisturbed(honest, target):
            await assault(200)
            await until_async(lambda: target.transport._acceptor.guests == 1, DEADLINE_S, "guests kept")
            memory, files = process.memory_info().rss, process.num_fds()
            await assault(FUZZ_ROUNDS - 200)
            await until_async(
                lambda: target.refusals.total == FUZZ_ROUNDS, DEADLINE_S, "not all were refused"
            )
            await until_async(lambda: target.transport._acceptor.guests == 1, DEADLINE_S, "guests kept")
            grown = process.memory_info().rss - memory
            assert process.num_fds() <= files
            assert grown < 8 << 20, f"memory grew by {grown >> 10} KiB over {FUZZ_ROUNDS - 200} refusals"
        assert len(target.refused) == 1, "logged more than once in a minute"
        assert {event.node_id for event in target.of(Received)} == {honest.node_id}
        assert target.of(LinkUp) == []
        assert all(isinstance(event.message, Heartbeat) for event in target.of(Received))
        assert len(target.of(CandidateSeen)) == FUZZ_ROUNDS + 1

    asyncio.run(scenario())
