"""The view of one node, made from the parts of its machine."""

from __future__ import annotations

from collections.abc import Iterable

from daisychain.core.ids import NodeId
from daisychain.core.membership import Membership
from daisychain.core.node import TrainerStatus
from daisychain.core.view import PeerView

_NOTHING = TrainerStatus()


def peer_views(
    members: Membership, left_out: Iterable[tuple[NodeId, str]], now: float
) -> tuple[PeerView, ...]:
    """Return every peer ever admitted, by name then id.

    ``left_out``: the coordinator's own reasons; a peer's own word is shown where it has none.
    """
    reasons = dict(left_out)
    views = [
        PeerView(
            info=peer.info,
            health=peer.health.value,
            silent_s=max(0.0, now - peer.heard_at),
            trainer=_NOTHING if peer.status is None else peer.status.trainer,
            standby=reasons.get(peer.info.node_id, "" if peer.status is None else peer.status.standby),
        )
        for peer in members
    ]
    return tuple(sorted(views, key=lambda view: (view.info.name, view.info.node_id)))
