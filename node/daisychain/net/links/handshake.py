"""How a link opens: the upgrade request's headers, and how each side says no.

    dialler                                   acceptor
    TLS 1.3, both certificates verified
    GET /chain  Upgrade: websocket            (version, nonce)
                                              101 (version, nonce)   or 4xx with a reason
    frame 0: Hello                            frame 0: Hello         or close with a reason
    frames 1...: messages                     nothing more, ever

Path, headers and refusals are the part that every version of DaisyChain keeps, so that two
versions can at least tell each other that they differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from daisychain.errors import ProtocolError
from daisychain.net.links.framing import NONCE_BYTES
from daisychain.net.links.refusals import printable
from daisychain.wire.codec import WIRE_VERSION

PATH = "/chain"
WIRE_HEADER = "DaisyChain-Wire"
NONCE_HEADER = "DaisyChain-Nonce"
REFUSAL_HEADER = "DaisyChain-Refusal"

STATUS_WRONG_VERSION = 426
STATUS_OURSELVES = 421
STATUS_NO_HANDSHAKE = 400
STATUS_BUSY = 503

REASON_MAX_BYTES = 120
"""A websocket close frame carries at most 123 bytes of reason."""


class CloseCode(IntEnum):
    """Why a link was closed; the reason text says it for people."""

    FAREWELL = 1000
    REFUSED = 4000
    CLONED = 4001
    REPLACED = 4002


def offer(nonce: bytes) -> dict[str, str]:
    """Return the headers with which either side opens a link."""
    return {WIRE_HEADER: str(WIRE_VERSION), NONCE_HEADER: nonce.hex()}


def nonce_in(headers: Mapping[str, str]) -> bytes:
    """Return the other side's nonce; raises `ProtocolError` when there is none."""
    try:
        nonce = bytes.fromhex(headers.get(NONCE_HEADER, ""))
    except ValueError:
        nonce = b""
    if len(nonce) != NONCE_BYTES:
        raise ProtocolError("no DaisyChain handshake (its nonce is missing or malformed)")
    return nonce


def version_clash(headers: Mapping[str, str]) -> str | None:
    """Return for people how the other side's wire version differs from ours, or None if it does not."""
    theirs = headers.get(WIRE_HEADER, "none")
    if theirs == str(WIRE_VERSION):
        return None
    return (
        f"it speaks wire version {printable(theirs, 12)}, this node {WIRE_VERSION}: "
        "install the same DaisyChain version on every node"
    )


def close_reason(text: str) -> bytes:
    """Return ``text`` as a close frame may carry it."""
    return printable(text).encode("ascii", "replace")[:REASON_MAX_BYTES]
