"""When a node tells its status: at once when it matters, otherwise at every interval."""

from __future__ import annotations

from collections.abc import Iterable

from daisychain.core.effects import Effect, Send
from daisychain.core.ids import NodeId
from daisychain.core.messages import Heartbeat
from daisychain.core.node import NodeStatus


def urgent_part(status: NodeStatus) -> tuple[object, ...]:
    """Return what of a status must be told at once when it changes: all but plain progress."""
    trainer = status.trainer
    return (
        status.incarnation,
        status.term,
        status.leading,
        status.reachable,
        tuple((card.run_id, card.state, card.revision) for card in status.jobs),
        trainer.state,
        trainer.run_id,
        trainer.generation,
        trainer.capacity,
        trainer.stalled,
        trainer.broken,
        trainer.reason,
        status.standby,
        status.holds,
        status.results,
        status.current,
    )


def chain_part(status: NodeStatus) -> tuple[object, ...]:
    """Return what of a status is about the chain, not about the node that tells it."""
    return (
        status.term,
        status.leading,
        tuple((card.run_id, card.state, card.revision) for card in status.jobs),
        status.holds,
        status.results,
        status.current,
    )


class Pulse:
    """The heartbeats of one node to every peer that it reaches."""

    def __init__(self, interval_s: float, now: float) -> None:
        self._interval_s = interval_s
        self._seq = 0
        self._told: tuple[object, ...] = ()
        self._due_at = now
        self._owed: set[NodeId] = set()

    def owe(self, node_id: NodeId) -> None:
        """This peer gets the status at the next occasion, changed or not: its link is new, or in doubt."""
        self._owed.add(node_id)

    def owe_all(self, now: float) -> None:
        """Everybody does."""
        self._due_at = now

    def beat(self, status: NodeStatus, linked: Iterable[NodeId], now: float) -> tuple[list[Effect], bool]:
        """Return the heartbeats to send now, and whether this was a regular beat."""
        urgent = urgent_part(status)
        regular = now >= self._due_at
        everybody = regular or urgent != self._told
        targets = [node_id for node_id in linked if everybody or node_id in self._owed]
        self._owed.clear()
        if everybody:
            self._told = urgent
            self._due_at = now + self._interval_s
        if not targets:
            return [], regular
        self._seq += 1
        heartbeat = Heartbeat(self._seq, status)
        return [Send(node_id, heartbeat) for node_id in targets], regular

    def deadline(self) -> float:
        """Return when the next regular beat is due."""
        return self._due_at
