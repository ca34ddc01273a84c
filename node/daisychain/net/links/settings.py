"""Every bound of the transport, and what each one stops."""

from __future__ import annotations

from dataclasses import dataclass, field

from daisychain.net.links.limits import GateSettings


@dataclass(frozen=True, slots=True)
class TransportSettings:
    """The bounds of one node's control connections.

    Attributes:
        connect_timeout_s: from a dial until the address answers at all; a silent one (a firewall that
            drops, a frozen node) must not hold a dial for the kernel's two minutes.
        dial_timeout_s: from a dial to LinkUp or DialFailed: four round trips, of more than a second each
            where a gradient fills the queue of a slow link.
        dials_max: dials in flight; a list of a thousand dead candidates must not take every socket.
        tls_timeout_s: from accept to a finished handshake; stops half-open connections.
        hello_timeout_s: from accept to a valid Hello, TLS and upgrade included; stops whoever
            finishes a handshake and then says nothing, or one byte a second.
        close_timeout_s: how long a link that ends waits for the other side's farewell; a frozen
            peer must not hold up a leave.
        inbound_max: authenticated links that peers hold to us, one a node; a key holder with
            many identities must not take every socket. More than any chain that makes sense.
        callers_max: authenticated connections that ask for bundles, in all; each costs a socket and its TLS
            state. More wait a moment at the asking side.
        callers_per_node: of one node: what an honest one has in flight to one peer.
        queue_messages, queue_bytes: what may wait for one slow peer; beyond, heartbeats are
            dropped first (see `Outbox`).
        messages_per_s, messages_burst: messages taken from one link; a peer that speaks faster is
            read slower, so that its flood costs at most a few percent of a core. An honest peer
            sends a handful a second; the burst is what may pile up while this machine slept.
        bytes_per_s, bytes_burst: likewise for the bytes of the messages.
        kernel_silence_s: unacknowledged data or unanswered keepalives after which the kernel ends
            the connection; the core's heartbeats notice a silent peer long before.
        listen_backlog: connections that the kernel holds for us until we accept them.
        gate: what connections without a proven node id may take.
    """

    connect_timeout_s: float = 3.0
    dial_timeout_s: float = 10.0
    dials_max: int = 32
    tls_timeout_s: float = 6.0
    hello_timeout_s: float = 10.0
    close_timeout_s: float = 0.5
    inbound_max: int = 64
    callers_max: int = 64
    callers_per_node: int = 6
    queue_messages: int = 128
    queue_bytes: int = 4 << 20
    messages_per_s: float = 200.0
    messages_burst: float = 1000.0
    bytes_per_s: float = float(4 << 20)
    bytes_burst: float = float(16 << 20)
    kernel_silence_s: int = 10
    listen_backlog: int = 128
    gate: GateSettings = field(default_factory=GateSettings)
