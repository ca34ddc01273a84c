"""How a simulated node fetches a folder or a result: chunk by chunk, from whoever has it and is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daisychain.core.effects import Fetch, Part
from daisychain.core.events import Fetched, FetchFailed
from daisychain.core.node import HeldResult
from simulation.network import Network
from simulation.timeline import Timeline

if TYPE_CHECKING:
    from simulation.node import SimNode

CHUNKS = 12
"""Of every simulated folder."""

CHUNK_S = 0.04
PATIENCE_S = 2.0
"""Without a chunk for so long a fetch gives up."""

LOOK_S = 0.6
"""From a folder's arrival until the node has looked at it."""


class SimFetch:
    """One fetch that is under way; its chunks lie on the node's disk, whatever becomes of it."""

    def __init__(self, node: SimNode, order: Fetch, network: Network, time: Timeline) -> None:
        lies_here = any(card.digest == order.card.digest for card in node.jobs)
        if lies_here and order.part is Part.FOLDER:
            time.tell(f"{node.name} fetches {order.card.run_id}, which lies in its folder unseen")
        self.order = order
        self._node = node
        self._life = node.life
        self._network = network
        self._time = time
        self._dropped = False
        self._heard_at = time.now
        time.after(CHUNK_S, self._go_on)

    def drop(self) -> None:
        """Ask for nothing more, and tell nothing."""
        self._dropped = True

    def _go_on(self) -> None:
        node = self._node
        if self._dropped or node.life != self._life:
            return
        if node.frozen:
            self._time.after(CHUNK_S, self._go_on)
            return
        run_id, digest, chunks = self.order.card.run_id, self.order.digest, node.disk.chunks
        if any(self._gives(source.address) for source in self.order.sources):
            self._heard_at = self._time.now
            chunks[digest] = chunks.get(digest, 0) + 1
        if chunks.get(digest, 0) >= CHUNKS:
            self._place()
        elif self._time.now > self._heard_at + PATIENCE_S:
            self._dropped = True
            node.post(FetchFailed(run_id, self.order.part, "nobody answers"))
        else:
            self._time.after(CHUNK_S, self._go_on)

    def _gives(self, address: object) -> bool:
        """Whether the peer there is up, reached, and has what is asked for."""
        source = next((n for at, n in self._network.nodes.items() if at == address), None)
        if source is None or not source.up or source.frozen:
            return False
        reached = self._network.both_ways(self._node.id, source.id)
        if self.order.part is Part.RESULT:
            return reached and any(r.digest == self.order.digest for r in source.disk.results.values())
        return reached and any(card.digest == self.order.digest for card in source.jobs)

    def _place(self) -> None:
        """All of it is here: it is in its place, and seen there a little later."""
        self._dropped = True
        node, card, life = self._node, self.order.card, self._life
        if self.order.part is Part.RESULT:
            node.disk.results[card.digest] = HeldResult(card.run_id, self.order.digest)
        elif all(job.digest != card.digest for job in node.jobs):
            node.jobs = (*node.jobs, node.found(card))
        self._time.tell(f"{node.name} has fetched the {self.order.part} of {card.run_id}")
        node.post(Fetched(card.run_id, self.order.part))

        def look() -> None:
            if node.life == life:
                node.look()

        self._time.after(LOOK_S, look)
