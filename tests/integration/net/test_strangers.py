"""Whoever does not hold the cluster key is refused, told of once a minute, and disturbs nobody."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from daisychain.core.events import CandidateSeen, Received
from daisychain.core.ids import Address
from daisychain.net.identity.cluster_key import ClusterKey
from daisychain.net.links.limits import GateSettings
from daisychain.net.links.transport import TransportSettings
from support.async_waiting import until_async
from support.chain_node import ChainNode, running, undisturbed
from support.raw_link import Intruder

pytestmark = pytest.mark.integration

KEY = ClusterKey(bytes(range(20)))
OTHER_KEY = ClusterKey(bytes(range(1, 21)))
DEADLINE_S = 10.0

Attack = Callable[[Address], Awaitable[None]]


def meet(tmp_path: Path, attack: Attack, times: int = 3, settings: TransportSettings | None = None) -> str:
    """Attack a node ``times`` times beside an honest link; return the one line that it logged."""

    async def scenario() -> str:
        honest = ChainNode(tmp_path, "honest", KEY)
        target = ChainNode(tmp_path, "target", KEY, settings)
        async with running(honest, target):
            async with undisturbed(honest, target):
                for _ in range(times):
                    await attack(target.address)
                await until_async(
                    lambda: target.refusals.total == times, DEADLINE_S, "an attack was not refused"
                )
            assert {event.node_id for event in target.of(CandidateSeen)} == {honest.node_id}
            assert {event.node_id for event in target.of(Received)} == {honest.node_id}
            assert len(target.events) == 1 + len(target.of(Received))
        (line,) = target.refused
        return line

    return asyncio.run(scenario())


async def read_to_end(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(DEADLINE_S):
        with contextlib.suppress(OSError):
            await reader.read()


def client_context(certificate: Path | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


async def over_tls(address: Address, context: ssl.SSLContext) -> None:
    """Finish our half of a TLS handshake and ask for the upgrade, as far as the node lets us."""
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
        writer.write(b"GET /chain HTTP/1.1\r\nUpgrade: websocket\r\n\r\n")
        await read_to_end(reader)
        writer.transport.abort()


async def over_tcp(address: Address, data: bytes) -> None:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(data)
    await read_to_end(reader)
    writer.transport.abort()


def test_a_client_without_a_certificate(tmp_path: Path) -> None:
    line = meet(tmp_path, lambda address: over_tls(address, client_context()))
    assert line == "refused 127.0.0.1: no certificate"


def test_a_certificate_of_another_cluster(tmp_path: Path) -> None:
    foreign = Intruder(tmp_path, "foreign", OTHER_KEY)
    context = foreign.contexts.dial
    context.verify_mode = ssl.CERT_NONE  # it does not mind whom it talks to
    line = meet(tmp_path, lambda address: over_tls(address, context))
    assert "a certificate that does not hold under this cluster's key" in line


def test_a_self_signed_certificate_with_an_honest_nodes_name(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"DaisyChain cluster {KEY.cluster_id}")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC))
        .not_valid_after(datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC))
        .sign(key, None)
    )
    path = tmp_path / "forged.pem"
    path.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        + certificate.public_bytes(Encoding.PEM)
    )
    line = meet(tmp_path, lambda address: over_tls(address, client_context(path)))
    assert "a certificate that does not hold under this cluster's key" in line


def test_an_older_tls(tmp_path: Path) -> None:
    intruder = Intruder(tmp_path, "old", KEY)
    context = client_context()
    context.load_cert_chain(intruder.identity.certificate_path, intruder.identity.key_path)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    line = meet(tmp_path, lambda address: over_tls(address, context))
    assert "no TLS handshake of a node (UNSUPPORTED_PROTOCOL)" in line


def test_a_plain_http_client(tmp_path: Path) -> None:
    line = meet(tmp_path, lambda address: over_tcp(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
    assert line == "refused 127.0.0.1: plain HTTP on the control port"


@pytest.mark.parametrize(
    "garbage",
    [b"\x00" * 64, b"\xff" * 4096, b"SSH-2.0-OpenSSH_9.2\r\n", b"\x16\x03\x01\xff\xff" + b"A" * 70_000],
)
def test_garbage_on_tcp(tmp_path: Path, garbage: bytes) -> None:
    assert "no TLS handshake of a node" in meet(tmp_path, lambda address: over_tcp(address, garbage))


def test_a_port_scan(tmp_path: Path) -> None:
    async def scan(address: Address) -> None:
        _, writer = await asyncio.open_connection(address.host, address.port)
        writer.transport.abort()

    assert "it left during the TLS handshake" in meet(tmp_path, scan)


def test_half_open_connections_end_at_the_bound_and_take_no_place_of_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = TransportSettings(
            tls_timeout_s=0.5, hello_timeout_s=1.0, gate=GateSettings(pending_per_source=8)
        )
        honest = ChainNode(tmp_path, "honest", KEY)
        target = ChainNode(tmp_path, "target", KEY, settings)
        intruder = Intruder(tmp_path, "intruder", KEY)
        async with running(honest, target), undisturbed(honest, target):
            readers = []
            for _ in range(30):  # says nothing at all
                reader, writer = await asyncio.open_connection(*_pair(target.address))
                readers.append((reader, writer))
            await until_async(lambda: target.refusals.total >= 22, DEADLINE_S, "the cap did not hold")
            for reader, writer in readers:
                await read_to_end(reader)
                writer.transport.abort()
            await until_async(lambda: target.refusals.total == 30, DEADLINE_S, "not all were ended")
            # With the key but without a word after the handshake: ended too.
            reader, writer = await intruder.tls(target.address)
            await read_to_end(reader)
            writer.transport.abort()
            await until_async(lambda: target.refusals.total == 31, DEADLINE_S, "silence was not ended")
            # And the places are free again.
            await ChainNodeVisit(tmp_path).pays(target)
        (line,) = target.refused
        assert "more than 8 connections that prove no node id" in line

    asyncio.run(scenario())


class ChainNodeVisit:
    """Another honest node that comes along."""

    def __init__(self, folder: Path) -> None:
        self.node = ChainNode(folder, "visitor", KEY)

    async def pays(self, target: ChainNode) -> None:
        async with running(self.node):
            await self.node.link_to(target)


def test_a_drip_of_single_bytes_ends_at_the_bound(tmp_path: Path) -> None:
    async def drip(address: Address) -> None:
        intruder = Intruder(tmp_path, "intruder", KEY)
        reader, writer = await intruder.tls(address)
        ended = asyncio.get_running_loop().create_task(read_to_end(reader))
        for byte in b"GET /chain HTTP/1.1\r\nX-Long: " + b"a" * 600:
            if ended.done():
                break
            writer.write(bytes([byte]))
            await asyncio.wait({ended}, timeout=0.02)
        assert ended.done(), "a slow request outlived its bound"
        writer.transport.abort()

    settings = TransportSettings(hello_timeout_s=1.0)
    assert "no Hello within 1 s" in meet(tmp_path, drip, times=1, settings=settings)


def test_a_loop_of_connections_is_slowed_at_accept(tmp_path: Path) -> None:
    async def scenario() -> None:
        gate = GateSettings(attempts_per_source_per_s=0.1, attempts_burst=5)
        target = ChainNode(tmp_path, "target", KEY, replace(TransportSettings(), gate=gate))
        async with running(target):
            for _ in range(8):
                await over_tcp(target.address, b"garbage that is no TLS record")
            await until_async(lambda: target.refusals.total == 8, DEADLINE_S, "not all were refused")
            with pytest.raises(OSError):  # even a key is not looked at now
                await Intruder(tmp_path, "intruder", KEY).tls(target.address)

    asyncio.run(scenario())


def test_two_clusters_name_each_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        ours, theirs = ChainNode(tmp_path, "ours", KEY), ChainNode(tmp_path, "theirs", OTHER_KEY)
        async with running(ours, theirs):
            failed = await ours.refused_by(theirs.address)
            assert not failed.refused
            assert not failed.ourselves
            assert failed.reason.startswith(
                f"it belongs to cluster {OTHER_KEY.cluster_id}; this node belongs to cluster {KEY.cluster_id}"
            )
            assert "`daisychain key join`" in failed.reason
            await until_async(lambda: theirs.refusals.total >= 1, DEADLINE_S, "it was not told of us")
            assert theirs.events == []

    asyncio.run(scenario())


def _pair(address: Address) -> tuple[str, int]:
    return address.host, address.port


def test_nobody_listens(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = ChainNode(tmp_path, "a", KEY)
        with socket.socket() as reserved:
            reserved.bind(("127.0.0.1", 0))  # bound, not listening: nobody else takes the port
            async with running(node):
                failed = await node.refused_by(Address("127.0.0.1", reserved.getsockname()[1]))
        assert failed.refused
        assert failed.reason == "nobody listens there"

    asyncio.run(scenario())


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_dialling_something_that_is_no_node(tmp_path: Path, answer: bytes) -> None:
    """A silent server ends at the dial's bound, a chatty one at once."""

    async def scenario() -> None:
        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(answer)
            writers.append(writer)

        writers: list[asyncio.StreamWriter] = []
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        node = ChainNode(tmp_path, "a", KEY, TransportSettings(dial_timeout_s=1.0))
        async with running(node):
            failed = await node.refused_by(Address("127.0.0.1", port))
        for writer in writers:
            writer.transport.abort()
        server.close()
        await server.wait_closed()
        assert not failed.refused
        assert ("TLS" in failed.reason) if answer else (failed.reason == "no answer within 1 s")

    asyncio.run(scenario())
