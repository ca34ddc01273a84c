"""Control connections do not depend on the machines' clocks.

Each end of a real handshake verifies the other's certificate at an instant of the test's choice:
the TLS library's own verification time, set on the contexts that the product made.
"""

from __future__ import annotations

import asyncio
import ctypes
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from daisychain.core.events import LinkUp, Received
from daisychain.net.identity.cluster_key import ClusterKey
from support.chain_node import ChainNode, heartbeat, running

pytestmark = pytest.mark.integration

KEY = ClusterKey(bytes(range(20)))
BEFORE_THE_FIRST = -1  # a second before 1970, when every certificate begins


def verify_at(context: ssl.SSLContext, seconds: int) -> None:
    """Let ``context`` verify certificates as if the clock stood at ``seconds`` since 1970.

    Python does not offer it, the library beneath does: the context's first field after the
    object header is the library's own.
    """
    library = ctypes.CDLL(_loaded("libssl"))
    library.SSL_CTX_get0_param.restype = ctypes.c_void_p
    library.SSL_CTX_get0_param.argtypes = [ctypes.c_void_p]
    library.X509_VERIFY_PARAM_set_time.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    native = ctypes.c_void_p.from_address(id(context) + object.__basicsize__)
    library.X509_VERIFY_PARAM_set_time(library.SSL_CTX_get0_param(native), seconds)


def _loaded(name: str) -> str:
    """Return the path of the library that this very process uses."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if name in path:
            return path
    raise AssertionError(f"{name} is not loaded")


def set_clock(node: ChainNode, seconds: int) -> None:
    verify_at(node.transport._acceptor._contexts.accept, seconds)
    verify_at(node.transport._dialler._contexts.dial, seconds)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (datetime(2026, 1, 1, tzinfo=UTC), datetime(2036, 1, 1, tzinfo=UTC)),  # ten years apart
        (datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)),  # a dead CMOS battery
        (datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)),
    ],
)
def test_nodes_meet_whatever_their_clocks_say(tmp_path: Path, mine: datetime, theirs: datetime) -> None:
    async def scenario() -> None:
        a, b = ChainNode(tmp_path, "a", KEY), ChainNode(tmp_path, "b", KEY)
        set_clock(a, int(mine.timestamp()))
        set_clock(b, int(theirs.timestamp()))
        async with running(a, b):
            await a.link_to(b)
            await b.link_to(a)
            a.transport.send(b.node_id, heartbeat(1, a.node_id))
            await b.next(Received)

    asyncio.run(scenario())


def test_the_instant_is_really_what_the_library_verifies_at(tmp_path: Path) -> None:
    """The control of the test above: before a certificate's first second the same handshake fails."""

    async def scenario() -> None:
        a, b = ChainNode(tmp_path, "a", KEY), ChainNode(tmp_path, "b", KEY)
        set_clock(a, BEFORE_THE_FIRST)
        async with running(a, b):
            failed = await a.refused_by(b.address)
            assert "certificate is not yet valid" in failed.reason
            b.transport.dial(a.address)
            await b.next(type(failed))
            assert "certificate is not yet valid" in a.refused[0]
            assert not a.of(LinkUp)
            assert not b.of(LinkUp)

    asyncio.run(scenario())
