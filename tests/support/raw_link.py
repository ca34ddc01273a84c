"""A link spoken by hand, byte by byte: what a buggy or hostile holder of a key could send."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import struct
from dataclasses import replace
from pathlib import Path

from daisychain.core.ids import Address, NodeId
from daisychain.core.messages import Hello, Message
from daisychain.net.identity.certificates import Authority
from daisychain.net.identity.cluster_key import ClusterKey
from daisychain.net.identity.node_identity import NodeIdentity
from daisychain.net.links.framing import NONCE_BYTES, LinkSecrets, Sealer
from daisychain.net.links.handshake import NONCE_HEADER, WIRE_HEADER
from daisychain.net.links.tls import TlsContexts, proven_node_id
from daisychain.wire.codec import PEER_CODEC, WIRE_VERSION
from support.chain_node import node_info

BINARY, TEXT, CLOSE, PING = 2, 1, 8, 9
ANSWER_DEADLINE_S = 10.0


class Intruder:
    """Holds a key and an identity of its own; opens raw links."""

    def __init__(self, folder: Path, name: str, key: ClusterKey) -> None:
        self.identity = NodeIdentity.load_or_create(folder / name)
        self.contexts = TlsContexts.make(self.identity, Authority.of(key))
        self.info = node_info(self.identity.node_id, name)

    async def tls(self, address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a finished TLS connection with this intruder's certificate, and nothing said on it."""
        return await asyncio.open_connection(
            address.host, address.port, ssl=self.contexts.dial, server_hostname=""
        )

    async def upgraded(self, address: Address, *, wire: int = WIRE_VERSION, path: str = "/chain") -> RawLink:
        """Return a connection past the upgrade (or its refusal), with no Hello said."""
        reader, writer = await self.tls(address)
        nonce = os.urandom(NONCE_BYTES)
        key = base64.b64encode(os.urandom(16)).decode()
        writer.write(
            (
                f"GET {path} HTTP/1.1\r\nHost: chain\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
                f"{WIRE_HEADER}: {wire}\r\n{NONCE_HEADER}: {nonce.hex()}\r\n\r\n"
            ).encode()
        )
        async with asyncio.timeout(ANSWER_DEADLINE_S):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        status, *lines = head.split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines if line)
        tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
        ends = LinkSecrets(
            self.identity.node_id, proven_node_id(tls), nonce, bytes.fromhex(headers[NONCE_HEADER])
        )
        return RawLink(reader, writer, ends, int(status.split()[1]), headers)

    async def linked(self, address: Address) -> RawLink:
        """Return an open link on which an honest Hello was said and answered."""
        link = await self.upgraded(address)
        link.say(Hello(self.info))
        opcode, _ = await link.read()
        assert opcode == BINARY
        return link

    def as_node(self, node_id: NodeId) -> Hello:
        """Return a Hello with somebody else's id."""
        return Hello(replace(self.info, node_id=node_id))


class RawLink:
    """One upgraded connection, of which every byte is ours to choose."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        ends: LinkSecrets,
        status: int,
        headers: dict[str, str],
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.sealer = Sealer(ends.tag(from_dialler=True))
        self.status = status
        self.headers = headers

    def say(self, message: Message) -> bytes:
        """Send a message as an honest node would; return its frame."""
        frame = self.sealer.seal(PEER_CODEC.encode(message))
        self.put(frame)
        return frame

    def put(self, payload: bytes, opcode: int = BINARY, *, claimed: int | None = None) -> None:
        """Send one websocket frame; ``claimed`` is the length that its header tells."""
        length = len(payload) if claimed is None else claimed
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))
        if length <= 125:
            header = struct.pack("!BB", 0x80 | opcode, 0x80 | length)
        else:
            header = struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, length)
        self.writer.write(header + mask + masked)

    async def read(self) -> tuple[int, bytes]:
        """Return opcode and payload of the next frame from the node; raises at the connection's end."""
        async with asyncio.timeout(ANSWER_DEADLINE_S):
            first, second = await self.reader.readexactly(2)
            length = second & 127
            if length == 126:
                (length,) = struct.unpack("!H", await self.reader.readexactly(2))
            elif length == 127:
                (length,) = struct.unpack("!Q", await self.reader.readexactly(8))
            return first & 15, await self.reader.readexactly(length)

    async def sent_away(self) -> str:
        """Wait for the node to close the link; return the reason that it gave, "" if it gave none."""
        try:
            while True:
                opcode, payload = await self.read()
                if opcode == CLOSE:
                    return payload[2:].decode()
        except (asyncio.IncompleteReadError, OSError):
            return ""
        finally:
            self.drop()

    def drop(self) -> None:
        """End the connection without a word."""
        self.writer.transport.abort()
