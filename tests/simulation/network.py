"""The simulated network: one-way cuts, delays, resets; links as FIFO byte pipes that may be re-made.

Messages go through the real codec. Within a link nothing overtakes; what was on its way in a link that
is closed may still arrive after the first messages of the next one, and may arrive twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from daisychain.core.events import CandidateSeen, DialFailed, InboundLost, LinkDown, LinkUp, Received
from daisychain.core.ids import Address, NodeId
from daisychain.core.messages import Message
from daisychain.wire.codec import PEER_CODEC
from simulation.timeline import Timeline

if TYPE_CHECKING:
    from simulation.node import SimNode

DIAL_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class Weather:
    """How bad the network is.

    ``lost``, ``twice``, ``late``: probability of a message to vanish (a full queue), to arrive again later,
    or to be overtaken by those sent within the next half second (it waited in a link that was closed since).
    """

    delay_s: float = 0.002
    jitter_s: float = 0.002
    lost: float = 0.0
    twice: float = 0.0
    late: float = 0.0


@dataclass(slots=True, eq=False)
class Link:
    """What ``dialler`` dialled to ``target``: it carries the dialler's messages."""

    dialler: SimNode
    target: SimNode
    dialler_life: int
    target_life: int
    open: bool = True
    busy_until: float = 0.0
    held: list[bytes] = field(default_factory=list)


class Network:
    """Every link and every cut."""

    def __init__(self, time: Timeline, weather: Weather) -> None:
        self._time = time
        self.weather = weather
        self.nodes: dict[Address, SimNode] = {}
        self._links: dict[tuple[NodeId, NodeId], Link] = {}
        self._cuts: set[tuple[NodeId, NodeId]] = set()
        self._encoded: tuple[Message, bytes] | None = None
        self._decoded: dict[bytes, Message] = {}

    def open(self, source: NodeId, target: NodeId) -> bool:
        """Whether packets pass from ``source`` to ``target``."""
        return (source, target) not in self._cuts

    def all_open(self, ids: Sequence[NodeId]) -> bool:
        """Whether packets pass from each of them to each other one."""
        if not self._cuts:
            return True
        inside = set(ids)
        return not any(source in inside and target in inside for source, target in self._cuts)

    def both_ways(self, one: NodeId, other: NodeId) -> bool:
        """Whether packets pass both ways."""
        return self.open(one, other) and self.open(other, one)

    def cut(self, source: NodeId, target: NodeId) -> None:
        """Let nothing pass from ``source`` to ``target`` any more."""
        self._cuts.add((source, target))

    def mend(self, pair: tuple[NodeId, NodeId] | None = None) -> None:
        """Let everything pass again, or what goes between two nodes; what the links still hold goes on."""
        self._cuts = set() if pair is None else self._cuts - {pair, pair[::-1]}
        for key, link in list(self._links.items()):
            if link.held and self.open(*key):
                held, link.held = link.held, []
                for data in held:
                    self._carry(link, data)

    def dial(self, dialler: SimNode, address: Address) -> None:
        """Open a link; the dialler hears of the outcome."""
        life = dialler.life
        target = self.nodes.get(address)

        def answer(event: LinkUp | DialFailed) -> None:
            if dialler.life == life:
                dialler.post(event)

        def fail() -> None:
            answer(DialFailed(address, refused=False, reason="no answer"))

        def arrive() -> None:
            if target is None or not self.both_ways(dialler.id, target.id) or (target.up and target.frozen):
                self._time.after(DIAL_TIMEOUT_S, fail)
            elif not target.up:
                answer(DialFailed(address, refused=True, reason="refused"))
            elif target is dialler:
                answer(DialFailed(address, refused=False, reason="ourselves", ourselves=True))
            elif dialler.life == life:
                link = Link(dialler, target, life, target.life, busy_until=self._time.now)
                self._drop(self._links.get((dialler.id, target.id)))
                self._links[dialler.id, target.id] = link
                target.post(CandidateSeen("inbound", dialler.info.address))
                answer(LinkUp(target.info, address, dialler.info.address.host))

        self._time.after(self._delay_s() * 2, arrive)

    def close(self, dialler: SimNode, node_id: NodeId) -> None:
        """The dialler closes its link; the other side hears of it when it can."""
        link = self._links.pop((dialler.id, node_id), None)
        if link is not None:
            self._drop(link)
            self._lost(link.target, link.target_life, InboundLost(dialler.id, reset=False), link)

    def send(self, dialler: SimNode, node_id: NodeId, message: Message) -> None:
        """Send over the dialler's link; dropped when there is none."""
        link = self._links.get((dialler.id, node_id))
        if link is None or self._time.random.random() < self.weather.lost:
            return
        if self._encoded is None or self._encoded[0] is not message:
            self._encoded = (message, PEER_CODEC.encode(message))
        if self.weather.late and self._time.random.random() < self.weather.late:
            self._time.after(self._time.random.uniform(0.0, 0.5), self._deliver(link, self._encoded[1]))
        else:
            self._carry(link, self._encoded[1])
        if self.weather.twice and self._time.random.random() < self.weather.twice:
            self._time.after(self._time.random.uniform(0.0, 1.0), self._deliver(link, self._encoded[1]))

    def reset(self, one: NodeId, other: NodeId) -> None:
        """Reset the links between two nodes, both ways."""
        for key in ((one, other), (other, one)):
            link = self._links.pop(key, None)
            if link is not None:
                self._drop(link)
                self._lost(link.dialler, link.dialler_life, LinkDown(link.target.id, True, "reset"), link)
                self._lost(link.target, link.target_life, InboundLost(link.dialler.id, True), link)

    def died(self, node: SimNode) -> None:
        """A process is gone: its kernel resets every link, as far as packets pass."""
        for key, link in list(self._links.items()):
            if node.id in key:
                del self._links[key]
                self._drop(link)
                if link.target is node:
                    self._lost(link.dialler, link.dialler_life, LinkDown(node.id, True, "reset"), link)
                else:
                    self._lost(link.target, link.target_life, InboundLost(node.id, True), link)

    def _lost(self, node: SimNode, life: int, event: LinkDown | InboundLost, link: Link) -> None:
        """Tell a side that its link ended, unless a newer one took its place or packets do not pass."""
        other = link.target if node is link.dialler else link.dialler

        def tell() -> None:
            if node.life != life or not self.open(other.id, node.id):
                return
            if isinstance(event, LinkDown) and (node.id, event.node_id) in self._links:
                return
            node.post(event)

        self._time.after(self._delay_s(), tell)

    def _drop(self, link: Link | None) -> None:
        if link is not None:
            link.open = False
            link.held.clear()

    def _carry(self, link: Link, data: bytes) -> None:
        link.busy_until = max(link.busy_until + 1e-6, self._time.now + self._delay_s())
        self._time.at(link.busy_until, self._deliver(link, data))

    def _deliver(self, link: Link, data: bytes) -> Callable[[], None]:
        def deliver() -> None:
            if link.target.life != link.target_life:
                return
            if not self.open(link.dialler.id, link.target.id):
                if link.open:
                    link.held.append(data)
                return
            message = self._decoded.get(data)
            if message is None:
                if len(self._decoded) > 500:
                    self._decoded.clear()
                message = self._decoded[data] = PEER_CODEC.decode(data)
            link.target.post(Received(link.dialler.id, message))

        return deliver

    def _delay_s(self) -> float:
        return self.weather.delay_s + self._time.random.random() * self.weather.jitter_s
