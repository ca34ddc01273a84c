"""Bundles over real TLS: who may read what, within which bounds, and that no heartbeat waits for them."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from daisychain.core.chunk_schedule import Chunk, ScheduleSettings
from daisychain.core.effects import Part, Source
from daisychain.core.ids import NodeId
from daisychain.core.manifest import FileEntry, Manifest
from daisychain.errors import BundleError
from daisychain.host.bundles.reading import BundlePlace
from daisychain.host.bundles.staging import Staging
from daisychain.host.job_folder import JobFolder, JobFolderSettings
from daisychain.net.bundles.client import AskError, BundleClient
from daisychain.net.bundles.paths import BundleKey, chunk_path, manifest_path
from daisychain.net.bundles.server import BundleServer
from daisychain.net.bundles.settings import BundleSettings
from daisychain.net.identity.certificates import Authority
from daisychain.net.identity.cluster_key import ClusterKey
from daisychain.net.links.handshake import WIRE_HEADER
from daisychain.net.links.settings import TransportSettings
from daisychain.net.links.tls import TlsContexts
from daisychain.runtime.download import Download
from daisychain.runtime.shelf import JobShelf
from daisychain.wire.codec import WIRE_VERSION
from daisychain.wire.manifests import MANIFEST_MAX_BYTES, decode_manifest
from support.async_waiting import until_async
from support.chain_node import ChainNode, heartbeat, running, undisturbed
from support.raw_link import Intruder

pytestmark = pytest.mark.integration

KEY = ClusterKey(bytes(range(20)))
OTHER_KEY = ClusterKey(bytes(range(1, 21)))
BOUNDS = BundleSettings()
SIZE = 5_300_000
"""Of the test's job: six chunks, the last one short."""


def make_job(folder: Path, name: str = "digits") -> Path:
    job = folder / name
    job.mkdir(parents=True)
    (job / "job.yaml").write_text(
        "kind: table\ndata: rows.csv\ntarget: y\ntask: regression\nglobal_batch_size: 8\nepochs: 1\n"
    )
    (job / "rows.csv").write_bytes(random.Random(5).randbytes(SIZE))
    return job


class Holder:
    """A node that gives the bundles of a jobs folder, with a transport of its own."""

    def __init__(
        self, tmp: Path, name: str, bounds: BundleSettings = BOUNDS, links: TransportSettings | None = None
    ) -> None:
        self.jobs = tmp / f"{name} jobs"
        make_job(self.jobs)
        folder = JobFolder(self.jobs, JobFolderSettings())
        (self.job,) = folder.scan(0.0, time.time() + 60.0)
        self.key = BundleKey(Part.FOLDER, self.job.digest)
        shelf = JobShelf(
            lambda key: BundlePlace(self.job.folder) if key == self.key else None,
            lambda _: folder.manifest(self.job, time.time()),
        )
        self.node = ChainNode(tmp, name, KEY, links)
        self.server = BundleServer(shelf, bounds)
        self.node.transport.have_answered(self.server)

    @property
    def source(self) -> Source:
        return Source(self.node.node_id, self.node.name, self.node.address)


@contextlib.asynccontextmanager
async def asking(node: ChainNode, bounds: BundleSettings = BOUNDS) -> AsyncIterator[BundleClient]:
    client = BundleClient(node.transport.contexts, bounds, TransportSettings().kernel_silence_s)
    try:
        yield client
    finally:
        await client.close()


class Memory:
    """A stage in memory that counts."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.chunks: dict[Chunk, bytes] = {}

    def missing(self) -> tuple[Chunk, ...]:
        return tuple(chunk for chunk in self.manifest.chunks() if chunk not in self.chunks)

    def put(self, file: int, chunk: int, data: bytes) -> None:
        import hashlib

        if hashlib.sha256(data).digest() != self.manifest.files[file].chunks[chunk]:
            raise BundleError("rows.csv", "other bytes")
        assert (file, chunk) not in self.chunks, "fetched twice"
        self.chunks[file, chunk] = data

    def file(self, name: str) -> bytes:
        index = next(i for i, file in enumerate(self.manifest.files) if file.name == name)
        return b"".join(data for (file, _), data in sorted(self.chunks.items()) if file == index)


def test_a_bundle_comes_from_two_nodes_at_once_byte_for_byte_while_heartbeats_pass(tmp_path: Path) -> None:
    async def scenario() -> None:
        one, two = Holder(tmp_path, "one"), Holder(tmp_path, "two")
        me = ChainNode(tmp_path, "me", KEY)
        async with running(one.node, two.node, me), undisturbed(me, one.node), asking(me) as client:
            download = Download(one.key, client, ScheduleSettings())
            download.offer((one.source, two.source))
            stage = await download.run(Memory)
            assert isinstance(stage, Memory)
            assert stage.file("rows.csv") == (one.job.folder / "rows.csv").read_bytes()
            assert download.done_bytes == download.size_bytes == stage.manifest.size_bytes
            served = (one.server.chunks_served, two.server.chunks_served)
            assert sum(served) == len(stage.chunks) and min(served) > 0
        assert one.node.refused == two.node.refused == []

    asyncio.run(scenario())


def test_a_liar_is_found_out_by_the_hash_and_the_rest_comes_from_the_honest(tmp_path: Path) -> None:
    async def scenario() -> None:
        honest, liar = Holder(tmp_path, "honest"), Holder(tmp_path, "liar")
        me = ChainNode(tmp_path, "me", KEY)

        async def lie(key: BundleKey, chunk: Chunk) -> bytes:
            return bytes((await truth(key, chunk)) or b"")[:-1] + b"!"

        truth = liar.server._shelf.chunk
        liar.server._shelf.chunk = lie  # type: ignore[method-assign]
        async with running(honest.node, liar.node, me), asking(me) as client:
            download = Download(honest.key, client, ScheduleSettings())
            download.offer((honest.source, liar.source))
            stage = await download.run(Memory)
            assert isinstance(stage, Memory)
            assert stage.file("rows.csv") == (honest.job.folder / "rows.csv").read_bytes()
            assert liar.server.chunks_served <= 2
            alone = Download(honest.key, client, ScheduleSettings())
            alone.offer((liar.source,))
            with pytest.raises(BundleError, match="liar: it gave other bytes"):
                await alone.run(Memory)

    asyncio.run(scenario())


def test_the_manifest_of_another_bundle_is_none(tmp_path: Path) -> None:
    async def scenario() -> None:
        holder, me = Holder(tmp_path, "holder"), ChainNode(tmp_path, "me", KEY)
        async with running(holder.node, me), asking(me) as client:
            other = BundleKey(Part.FOLDER, Manifest((FileEntry("x", 0, ()),)).digest)
            truth = holder.server._shelf.manifest

            async def lie(key: BundleKey) -> bytes | None:
                assert key == other
                return await truth(holder.key)

            holder.server._shelf.manifest = lie  # type: ignore[method-assign]
            download = Download(other, client, ScheduleSettings())
            download.offer((holder.source,))
            with pytest.raises(BundleError, match="holder: it gave the manifest of another bundle"):
                await download.run(Memory)

    asyncio.run(scenario())


def test_only_what_is_held_can_be_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        holder, me = Holder(tmp_path, "holder"), ChainNode(tmp_path, "me", KEY)
        (tmp_path / "holder jobs" / "secret").write_text("nobody's")
        async with running(holder.node, me), asking(me) as client:
            source = holder.source
            data = await client.manifest(source, holder.key, MANIFEST_MAX_BYTES)
            assert decode_manifest(data).digest == holder.job.digest
            for path in (
                manifest_path(BundleKey(Part.FOLDER, "0" * 64)),
                manifest_path(BundleKey(Part.RESULT, holder.job.digest)),
                chunk_path(holder.key, (2, 0)),
                chunk_path(holder.key, (0, 1)),
                chunk_path(holder.key, (999_999, 999_999)),
                "/bundle/job/../../secret/manifest",
                "/bundle/job/%2e%2e/0/0",
                f"/bundle/job/{holder.job.digest}/-1/0",
                "/bundle/",
                "/bundle/job/" + "0" * 900 + "/manifest",
            ):
                with pytest.raises(AskError):
                    await client._get(source, path, MANIFEST_MAX_BYTES)
            (holder.job.folder / "rows.csv").write_bytes(b"changed")
            with pytest.raises(AskError, match=r"rows\.csv"):
                await client.chunk(source, holder.key, (1, 0), 1 << 20)

    asyncio.run(scenario())


def test_without_the_key_nothing_is_read(tmp_path: Path) -> None:
    async def scenario() -> None:
        holder, me = Holder(tmp_path, "holder"), ChainNode(tmp_path, "me", KEY)
        stranger = ChainNode(tmp_path, "stranger", OTHER_KEY)
        async with running(holder.node, me, stranger):
            contexts = TlsContexts.make(stranger.identity, Authority.of(OTHER_KEY))
            contexts.dial.check_hostname = False
            blind = replace(contexts, dial=contexts.inspect)
            for wrong in (contexts, blind):
                client = BundleClient(wrong, BOUNDS, TransportSettings().kernel_silence_s)
                with pytest.raises(AskError):
                    await client.manifest(holder.source, holder.key, MANIFEST_MAX_BYTES)
                await client.close()
            await until_async(lambda: holder.node.refusals.total >= 1, 10.0, "nobody was refused")
            assert holder.server.chunks_served == 0

    asyncio.run(scenario())


def test_an_answer_of_another_node_at_the_address_is_none(tmp_path: Path) -> None:
    async def scenario() -> None:
        holder, me = Holder(tmp_path, "holder"), ChainNode(tmp_path, "me", KEY)
        async with running(holder.node, me), asking(me) as client:
            elsewhere = replace(holder.source, node_id=NodeId("f" * 32))
            with pytest.raises(AskError, match="another node answered"):
                await client.manifest(elsewhere, holder.key, MANIFEST_MAX_BYTES)

    asyncio.run(scenario())


async def ask_by_hand(
    intruder: Intruder, holder: Holder, wire: int = WIRE_VERSION
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
    reader, writer = await intruder.tls(holder.node.address)
    path = manifest_path(holder.key)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: chain\r\n{WIRE_HEADER}: {wire}\r\n\r\n".encode())
    return reader, writer, await reader.readuntil(b"\r\n\r\n")


def test_one_node_cannot_take_every_connection_and_links_still_open(tmp_path: Path) -> None:
    async def scenario() -> None:
        links = TransportSettings(callers_max=4, callers_per_node=2)
        holder, me = Holder(tmp_path, "holder", links=links), ChainNode(tmp_path, "me", KEY)
        greedy = Intruder(tmp_path, "greedy", KEY)
        async with running(holder.node, me):
            held = [await ask_by_hand(greedy, holder) for _ in range(4)]
            statuses = [head.split(b" ")[1] for _, _, head in held]
            assert statuses == [b"200", b"200", b"503", b"503"]
            async with asking(me) as client:
                await client.manifest(holder.source, holder.key, MANIFEST_MAX_BYTES)
            await me.link_to(holder.node)
            me.transport.send(holder.node.node_id, heartbeat(1, me.node_id))
            for _, writer, _ in held:
                writer.transport.abort()
            await until_async(
                lambda: holder.node.transport._acceptor.guests == 1, 10.0, "connections are left"
            )

    asyncio.run(scenario())


def test_another_version_is_refused_and_a_callers_connection_becomes_no_link(tmp_path: Path) -> None:
    async def scenario() -> None:
        holder = Holder(tmp_path, "holder")
        odd = Intruder(tmp_path, "odd", KEY)
        async with running(holder.node):
            _, writer, head = await ask_by_hand(odd, holder, wire=WIRE_VERSION + 1)
            assert head.startswith(b"HTTP/1.1 426")
            writer.transport.abort()
            reader, writer, head = await ask_by_hand(odd, holder)
            assert head.startswith(b"HTTP/1.1 200")
            size = next(
                int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length: ")
            )
            await reader.readexactly(size)
            writer.write(
                b"GET /chain HTTP/1.1\r\nHost: chain\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
                + f"{WIRE_HEADER}: {WIRE_VERSION}\r\nDaisyChain-Nonce: {'ab' * 16}\r\n\r\n".encode()
            )
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 400")
            writer.transport.abort()

    asyncio.run(scenario())


def test_who_reads_no_answer_is_cut_off_and_holds_no_turn(tmp_path: Path) -> None:
    async def scenario() -> None:
        bounds = replace(BOUNDS, serve_timeout_s=1.0, served_max=1)
        holder, me = Holder(tmp_path, "holder", bounds), ChainNode(tmp_path, "me", KEY)
        sleepy = Intruder(tmp_path, "sleepy", KEY)
        async with running(holder.node, me), asking(me) as client:
            _, writer = await sleepy.tls(holder.node.address)
            writer.transport._ssl_protocol._transport.pause_reading()  # type: ignore[attr-defined]
            path = chunk_path(holder.key, (1, 0))
            ask = f"GET {path} HTTP/1.1\r\nHost: chain\r\n{WIRE_HEADER}: {WIRE_VERSION}\r\n\r\n"
            writer.write(4 * ask.encode())  # more than all buffers between the two hold
            await asyncio.sleep(0.2)
            began = time.monotonic()
            await client.manifest(holder.source, holder.key, MANIFEST_MAX_BYTES)
            assert time.monotonic() - began < 5.0

            def cut_off() -> bool:
                guests = holder.node.transport._acceptor._guests
                return all(guest.caller != sleepy.identity.node_id for guest in guests)

            await until_async(cut_off, 10.0, "it was not cut off")
            writer.transport.abort()

    asyncio.run(scenario())


def test_the_pace_is_kept_by_either_side_and_lifted_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        holder, me = Holder(tmp_path, "holder"), ChainNode(tmp_path, "me", KEY)
        async with running(holder.node, me), asking(me) as client:
            for pace in (holder.server.pace, client.pace):
                pace.set(4e6)
                began = time.monotonic()
                await client.chunk(holder.source, holder.key, (1, 0), 1 << 20)
                assert time.monotonic() - began > 0.9 * ((1 << 20) - (1 << 16)) / 4e6
                pace.set(1.0)
                slow = asyncio.ensure_future(client.chunk(holder.source, holder.key, (1, 1), 1 << 20))
                await asyncio.sleep(0.1)
                assert not slow.done()
                pace.set(0.0)
                await asyncio.wait_for(slow, 5.0)

    asyncio.run(scenario())


def test_a_fetch_that_broke_goes_on_without_asking_again_for_what_was_verified(tmp_path: Path) -> None:
    """The link breaks, and the fetching node begins anew with what lies on its disk."""

    async def scenario() -> None:
        holder, me = Holder(tmp_path, "holder"), ChainNode(tmp_path, "me", KEY)
        incoming = tmp_path / "incoming"
        async with running(holder.node, me):
            async with asking(me) as client:
                client.pace.set(8e6)
                broken = Download(holder.key, client, ScheduleSettings())
                broken.offer((holder.source,))
                fetch = asyncio.ensure_future(broken.run(lambda manifest: Staging(incoming, manifest)))
                await until_async(lambda: broken.done_bytes >= 2 << 20, 10.0, "nothing comes")
                for guest in list(holder.node.transport._acceptor._guests):
                    guest.abort()
                fetch.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await fetch
            there_bytes = broken.done_bytes
            served = holder.server.chunks_served
            async with asking(me) as client:
                again = Download(holder.key, client, ScheduleSettings())
                again.offer((holder.source,))
                missing: list[int] = []

                def restaged(manifest: Manifest) -> Staging:
                    staging = Staging(incoming, manifest)
                    missing.append(len(staging.missing()))
                    assert staging.present_bytes >= there_bytes >= 2 << 20
                    return staging

                stage = await again.run(restaged)
            assert isinstance(stage, Staging)
            assert missing[0] > 0
            assert holder.server.chunks_served - served == missing[0], "a verified chunk was fetched again"
            placed = stage.place(tmp_path / "my jobs", "digits")
            assert (placed / "rows.csv").read_bytes() == (holder.job.folder / "rows.csv").read_bytes()

    (tmp_path / "my jobs").mkdir()
    asyncio.run(scenario())
