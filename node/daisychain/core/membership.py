"""Who is in the chain: alive, suspect, dead or left, from first-hand evidence only.

Nobody's death is taken on hearsay: each node judges by its own links. So a rumour can neither
kill a node nor keep a dead one alive, and the coordinator compares what each member reaches itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from daisychain.core.ids import Address, NodeId
from daisychain.core.node import NodeInfo, NodeStatus
from daisychain.core.rhythm import Rhythm
from daisychain.core.settings import CoreSettings


class Health(StrEnum):
    """What this node holds of a peer."""

    ALIVE = "alive"
    SUSPECT = "suspect"  # a link fell, or it is silent for half of what its death takes
    DEAD = "dead"
    LEFT = "left"  # said goodbye; only a later incarnation comes back


@dataclass(slots=True)
class Peer:
    """One other node.

    Attributes:
        info: its Hello; ``info.incarnation`` tells one life of it from the next.
        address: where our dial last reached it.
        linked: whether the link that we dialled is up.
        status: its newest status of this life; None until it was heard, so both ways are proven.
        seq: of the heartbeat that told it.
        heard_at: when the last sign of life came: a message, or data of a world that it is in.
        spoke_at: when its last message came.
        proven_at: when a world that it is in last showed that it lives.
        answered_at: when it last answered over the present link, or that came up.
        unlinked_at: when our link to it fell.
    """

    info: NodeInfo
    address: Address
    heard_at: float
    health: Health = Health.ALIVE
    linked: bool = True
    status: NodeStatus | None = None
    seq: int = 0
    spoke_at: float = 0.0
    proven_at: float = 0.0
    answered_at: float = 0.0
    unlinked_at: float = 0.0
    rhythm: Rhythm = field(default_factory=Rhythm)

    @property
    def alive(self) -> bool:
        """Whether it is trusted to take part in something new: no doubt, and heard both ways."""
        return self.health is Health.ALIVE and self.linked and self.status is not None

    @property
    def present(self) -> bool:
        """Whether it still counts in what runs: not dead or left, and heard in this life."""
        return self.health in (Health.ALIVE, Health.SUSPECT) and self.status is not None


class Membership:
    """Every peer ever admitted (bounded), and the evidence of its life."""

    def __init__(self, me: NodeInfo, settings: CoreSettings) -> None:
        self._me = me
        self._settings = settings
        self._peers: dict[NodeId, Peer] = {}
        self._due_at = -math.inf  # before this nobody's silence says anything new

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._peers.values())

    def get(self, node_id: NodeId) -> Peer | None:
        """Return the peer, or None when it was never admitted."""
        return self._peers.get(node_id)

    def objection(self, info: NodeInfo) -> str:
        """Return why a node that answered our dial is not admitted; empty when it is."""
        if info.node_id == self._me.node_id:
            return (
                f"{info.name} at {info.address} carries this node's own id on another machine: a cloned "
                "state folder. One of the two takes a new id by itself."
            )
        peer = self._peers.get(info.node_id)
        if peer is None:
            if len(self._peers) >= self._settings.peers_max and not self._make_room():
                return f"this chain already knows {len(self._peers)} nodes, the most that it admits"
            return ""
        if peer.health in (Health.ALIVE, Health.SUSPECT) and peer.info.machine_id != info.machine_id:
            return (
                f"{info.name} at {info.address} carries the id of {peer.info.name} at {peer.info.address}, "
                "which lives: a cloned state folder. One of them takes a new id by itself."
            )
        if info.incarnation < peer.info.incarnation or (
            peer.health is Health.LEFT and info.incarnation == peer.info.incarnation
        ):
            return f"an earlier life of {info.name} (incarnation {info.incarnation})"
        return ""

    def link_up(self, info: NodeInfo, address: Address, now: float) -> bool:
        """Admit a node without objection; return whether it is new, or has a new life."""
        peer = self._peers.get(info.node_id)
        self._due_at = -math.inf
        if peer is None or info.incarnation > peer.info.incarnation:
            self._peers[info.node_id] = Peer(info, address, now, spoke_at=now, answered_at=now)
            return True
        revived = peer.health is Health.DEAD
        peer.info, peer.address, peer.linked, peer.heard_at = info, address, True, now
        peer.health, peer.spoke_at, peer.answered_at = Health.ALIVE, now, now
        return revived

    def link_down(self, node_id: NodeId, now: float) -> Peer | None:
        """Our link fell: the peer is suspect until it is linked again. Returns it when it was linked."""
        peer = self._peers.get(node_id)
        if peer is None or not peer.linked:
            return None
        peer.linked, peer.unlinked_at = False, now
        self._due_at = -math.inf
        if peer.health is Health.ALIVE:
            peer.health = Health.SUSPECT
        return peer

    def doubt(self, node_id: NodeId) -> None:
        """Something speaks against the peer's life; the next message from it clears that."""
        peer = self._peers.get(node_id)
        if peer is not None and peer.health is Health.ALIVE:
            peer.health = Health.SUSPECT

    def heard(self, node_id: NodeId, now: float) -> Peer | None:
        """A message came from the peer; returns it unless it is unknown or has left.

        A dead one stays dead until our dial reaches it: what cannot be answered is no member.
        """
        peer = self._peers.get(node_id)
        if peer is None or peer.health is Health.LEFT:
            return None
        if peer.health is not Health.DEAD:
            peer.rhythm.add(now - peer.spoke_at, self._settings)
            if peer.linked:
                peer.health = Health.ALIVE
        peer.heard_at = peer.spoke_at = now
        self._due_at = min(self._due_at, self._due(peer))  # it may be given less time than before
        return peer

    def told(self, peer: Peer, seq: int, status: NodeStatus) -> bool:
        """Take in a peer's status; return False for an older one, or of a dead peer."""
        if status.incarnation != peer.info.incarnation or peer.health is Health.DEAD or seq <= peer.seq:
            return False
        peer.status, peer.seq = status, seq
        return True

    def prove(self, node_ids: Iterable[NodeId], at: float) -> None:
        """At ``at`` the world that all of them are in committed a step, or brought data: who is in it lives.

        Their messages may wait behind a gradient for longer than a silence may last.
        """
        for node_id in node_ids:
            peer = self._peers.get(node_id)
            if peer is not None:
                peer.heard_at = max(peer.heard_at, at)
                peer.proven_at = max(peer.proven_at, at)
                peer.unlinked_at = max(peer.unlinked_at, at)

    def bury(self, node_id: NodeId, health: Health) -> Peer | None:
        """Declare the peer dead or left; return it when that is news."""
        peer = self._peers.get(node_id)
        if peer is None or peer.health in (Health.DEAD, Health.LEFT):
            if peer is not None and health is Health.LEFT:
                peer.health = health
            return None
        peer.health, peer.status, peer.rhythm = health, None, Rhythm()
        return peer

    def silent(self, now: float) -> list[Peer]:
        """Doubt whoever is silent for long, and return those silent for too long: they are dead."""
        if now < self._due_at:
            return []
        gone = []
        for peer in self._peers.values():
            if peer.health not in (Health.ALIVE, Health.SUSPECT):
                continue
            limit_s = peer.rhythm.limit_s(self._settings)
            unlinked = not peer.linked and now >= peer.unlinked_at + limit_s
            if unlinked or now >= peer.heard_at + limit_s:
                gone.append(peer)
            elif now >= peer.heard_at + limit_s / 2:
                peer.health = Health.SUSPECT
        return gone

    def unanswered(self, now: float) -> list[Peer]:
        """Return whom our messages do not seem to reach, though it lives: its link wants a new dial."""
        if now < self._due_at:
            return []
        return [peer for peer in self._peers.values() if peer.linked and now >= self._renewal_at(peer)]

    def _renewal_at(self, peer: Peer) -> float:
        """Return when the link to a peer that answers nothing over it is given up.

        While its world shows that it lives its answers may be slow, but not for ever: the link itself may be
        dead, reset while nothing came through, and a cancelled run would never be heard of.
        """
        limit_s, most_s = peer.rhythm.limit_s(self._settings), self._settings.silence_ceiling_s
        proven_at = min(peer.proven_at, peer.answered_at + max(0.0, most_s - limit_s))
        return max(peer.answered_at, proven_at) + limit_s

    def refresh(self, now: float) -> None:
        """This node itself was frozen: every peer gets its full time to be heard again."""
        for peer in self._peers.values():
            peer.heard_at = peer.spoke_at = peer.answered_at = peer.unlinked_at = now

    def reachable(self) -> tuple[NodeId, ...]:
        """Return whom this node reaches and hears, itself included, sorted."""
        present = [node_id for node_id, peer in self._peers.items() if peer.present]
        return tuple(sorted([*present, self._me.node_id]))

    def deadline(self, now: float) -> float:
        """Return when `silent` or `unanswered` next have something to say, at the earliest.

        It is looked for again only when that moment is near, or a link changes: every sign of life puts it
        off. Near is a heartbeat's interval: our own regular beat puts it off, and no node wakes for it.
        """
        if now >= self._due_at - self._settings.heartbeat_s:
            self._due_at = min((self._due(peer) for peer in self._peers.values()), default=math.inf)
        return self._due_at

    def _due(self, peer: Peer) -> float:
        """Return when this peer's silence next says something."""
        if peer.health not in (Health.ALIVE, Health.SUSPECT):
            return math.inf
        limit_s = peer.rhythm.limit_s(self._settings)
        silent_at = peer.heard_at + (limit_s / 2 if peer.health is Health.ALIVE else limit_s)
        return min(silent_at, self._renewal_at(peer) if peer.linked else peer.unlinked_at + limit_s)

    def _make_room(self) -> bool:
        """Forget the peer that is gone for longest."""
        gone = [
            (peer.heard_at, node_id)
            for node_id, peer in self._peers.items()
            if peer.health in (Health.DEAD, Health.LEFT)
        ]
        if not gone:
            return False
        del self._peers[min(gone)[1]]
        return True
