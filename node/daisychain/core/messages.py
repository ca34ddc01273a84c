"""What nodes say to each other over authenticated links.

State travels level-triggered: every heartbeat carries the sender's whole status, so a lost
message is mended by the next one. Only the formation of a world needs messages of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from daisychain.core.ids import Generation, RunId
from daisychain.core.node import NodeInfo, NodeStatus
from daisychain.core.world import WorldPlan


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message on every link, both ways; its node id must be the certificate's."""

    info: NodeInfo


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The sender's status; answered by HeartbeatAck with the same ``seq``.

    Sent every interval, and at once when the status changed.
    """

    seq: int
    status: NodeStatus


@dataclass(frozen=True, slots=True)
class HeartbeatAck:
    """Proof that the receiver lives and that the way is open in both directions."""

    seq: int


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The sender leaves in good order: no detection delay, and its trainer has left its world.

    ``incarnation`` is the sender's: a goodbye that arrives after its next life has begun is stale.
    """

    incarnation: int
    reason: str


@dataclass(frozen=True, slots=True)
class PlanWorld:
    """Coordinator to member: form this world; obeyed only from the highest known term."""

    plan: WorldPlan


@dataclass(frozen=True, slots=True)
class OfferBlob:
    """Member to coordinator: its rank's gloo address blob (at most BLOB_MAX_BYTES)."""

    generation: Generation
    rank: int
    blob: bytes


@dataclass(frozen=True, slots=True)
class SpreadBlobs:
    """Coordinator to members: every rank's blob, in rank order."""

    generation: Generation
    blobs: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class CancelRun:
    """Any node to any node, on a user's word: the run is cancelled (also spread by job cards)."""

    run_id: RunId


Message = Hello | Heartbeat | HeartbeatAck | Goodbye | PlanWorld | OfferBlob | SpreadBlobs | CancelRun

BLOB_MAX_BYTES = 16_384
"""Largest gloo address blob accepted: a real one of 32 ranks is under 8 KiB."""
