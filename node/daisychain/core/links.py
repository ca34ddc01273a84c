"""What discovery, dials and links tell a node, and what it does about it."""

from __future__ import annotations

from daisychain.core.effects import CloseLink, Effect, Level, Note
from daisychain.core.events import CandidateSeen, DialFailed, InboundLost, LinkDown, LinkUp
from daisychain.core.ids import NodeId
from daisychain.core.membership import Health, Peer
from daisychain.core.parts import Parts
from daisychain.core.strangers import foreign


def seen(parts: Parts, event: CandidateSeen, now: float) -> list[Effect]:
    """Discovery found an address: dialled when it may be ours, told to people when it cannot."""
    reason = foreign(event, parts.cluster_id)
    if reason:
        news = parts.strangers.add(event.address, event.source, reason)
        return [Note(Level.INFO, f"{event.address}: {reason}", f"foreign {event.address}")] if news else []
    if event.address == parts.info.address:
        return []
    # Our own id elsewhere is ourselves by another way or a cloned disk, and a node that left may be back in a
    # new life, on any port: the handshake tells, so both are dialled like anybody.
    claimed = event.node_id
    if claimed is not None and (claimed == parts.info.node_id or has_left(parts, claimed)):
        claimed = None
    owner = parts.candidates.owner_of(event.address)
    if owner is not None and has_left(parts, owner):
        parts.candidates.disown(event.address)
    parts.candidates.seen(event.address, event.source, claimed, now)
    return []


def has_left(parts: Parts, node_id: NodeId) -> bool:
    """Whether the node said goodbye in the last life that is known of it."""
    peer = parts.members.get(node_id)
    return peer is not None and peer.health is Health.LEFT


def dial_failed(parts: Parts, event: DialFailed, now: float) -> list[Effect]:
    """A dial ended without a link: the address waits; a refused peer whose link fell is dead."""
    if event.ourselves:
        parts.candidates.refuse(event.address)
        return []
    owner = parts.candidates.owner_of(event.address)
    parts.candidates.failed(event.address, now)
    peer = None if owner is None else parts.members.get(owner)
    if peer is None:
        if not event.refused and parts.strangers.add(event.address, "dialled", event.reason):
            note = f"no peer at {event.address}: {event.reason}"
            return [Note(Level.INFO, note, f"no peer {event.address}")]
    elif event.refused and not peer.linked and peer.address == event.address:
        return bury(parts, peer, Health.DEAD, "nobody listens there any more", now)
    return []


def link_up(parts: Parts, event: LinkUp, now: float) -> list[Effect]:
    """A dial reached a node of this cluster: it is admitted, or refused with the reason."""
    info, address = event.info, event.address
    objection = parts.members.objection(info)
    if objection:
        if info.node_id == parts.info.node_id:
            parts.candidates.refuse(address)
        else:
            parts.candidates.failed(address, now)
        parts.members.link_down(info.node_id, now)
        parts.strangers.add(address, "dialled", objection)
        note = Note(Level.WARNING, f"not admitted: {objection}", f"objection {address}")
        return [CloseLink(info.node_id, objection), note]
    parts.strangers.drop(address)
    parts.candidates.linked(address, info.node_id, now)
    parts.pulse.owe(info.node_id)
    if not parts.members.link_up(info, address, now):
        return []
    parts.election.discovered(now)
    return [Note(Level.INFO, f"{info.name} at {address} is in the chain", f"up {info.node_id}")]


def bury(parts: Parts, peer: Peer, health: Health, reason: str, now: float) -> list[Effect]:
    """A peer is dead or has left: its link is closed, the rest follows from the whole."""
    node_id = peer.info.node_id
    if parts.members.bury(node_id, health) is None:
        return []
    effects: list[Effect] = []
    if peer.linked:
        parts.members.link_down(node_id, now)
        effects.append(CloseLink(node_id, reason))
    return [
        *effects,
        Note(Level.WARNING, f"{peer.info.name} is {health.value}: {reason}", f"gone {node_id}"),
    ]


def link_down(parts: Parts, event: LinkDown, now: float) -> list[Effect]:
    """Our link fell: the peer is suspect and dialled again at once; a refusal then means death."""
    peer = parts.members.link_down(event.node_id, now)
    if peer is not None:
        parts.candidates.lost(peer.address, now)
    return []


def renew(parts: Parts, peer: Peer, now: float) -> list[Effect]:
    """The peer lives but answers nothing that we send: our link is dead on the way, and dialled anew."""
    parts.members.link_down(peer.info.node_id, now)
    parts.candidates.lost(peer.address, now)
    return [CloseLink(peer.info.node_id, "it is heard but does not answer over this link")]


def inbound_lost(parts: Parts, event: InboundLost) -> list[Effect]:
    """The peer's link to us fell: it is asked at once whether it lives."""
    if event.reset:
        parts.members.doubt(event.node_id)
    parts.pulse.owe(event.node_id)
    return []
