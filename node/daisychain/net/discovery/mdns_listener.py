"""What of the LAN's announcements becomes a candidate, bounded against whoever floods it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from zeroconf import DNSQuestionType, IPVersion, ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceInfo

from daisychain.core.events import CandidateSeen
from daisychain.errors import NetworkError
from daisychain.net.discovery.mdns_record import SERVICE_TYPE, Neighbour, node_of, read_neighbour
from daisychain.net.discovery.sources import Announcement, SourceHealth
from daisychain.net.interface_choice import InterfaceChoice


@dataclass(frozen=True, slots=True)
class MdnsSettings:
    """Bounds of the mDNS source.

    Attributes:
        neighbours_max: most services remembered; stops a flood of invented names from filling memory.
            A neighbour of our own cluster takes the place of one that is not.
        unresolved_max: most names whose details are still to be asked for; the rest wait for the next
            announcement. Stops invented names from making us ask without end.
        resolvers: how many are asked for at a time.
        resolve_timeout_s: how long one is asked for; without an answer the node has vanished.
        refresh_s: seconds between two rounds in which what is still there is found again.
        announce_again_s: seconds between two announcements of ours: who could not hear the last one, because
            a cable was out or a switch was down, asks ever more rarely, in the end once an hour.
        record_ttl_s: how long others may believe our announcement without asking again.
        echo_timeout_s: our own announcement must be heard within this, or multicast does not work here.
        open_attempts: how often a socket that is in use is tried, see `open_retry_s`.
        open_retry_s: seconds before the second attempt; doubled for each later one.
        goodbye_s: most seconds for the goodbye at the end.
    """

    neighbours_max: int = 64
    unresolved_max: int = 64
    resolvers: int = 4
    resolve_timeout_s: float = 1.5
    refresh_s: float = 5.0
    announce_again_s: float = 10.0
    record_ttl_s: int = 120
    echo_timeout_s: float = 3.0
    open_attempts: int = 4
    open_retry_s: float = 0.25
    goodbye_s: float = 1.5


class MdnsListener:
    """What is heard while one set of sockets lives; bounded in all that it keeps."""

    def __init__(
        self,
        zeroconf: Zeroconf,
        announcement: Announcement,
        interface: InterfaceChoice,
        settings: MdnsSettings,
    ) -> None:
        self._zeroconf = zeroconf
        self._announcement = announcement
        self._interface = interface
        self._settings = settings
        self._where = f"{interface.name} ({interface.address})"
        self._pending: set[str] = set()
        self._neighbours: dict[str, Neighbour] = {}
        self._refused = ""
        self._heard_ourselves = asyncio.Event()
        self._wake = asyncio.Event()
        self._unresolved: asyncio.Queue[str] = asyncio.Queue(settings.unresolved_max)
        self._queued: set[str] = set()

    def changed(
        self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange
    ) -> None:
        """Note what zeroconf heard; called in the event loop, with these names."""
        if node_of(name) is None:
            self._refused = "a service whose name is not a node id"
        elif state_change is ServiceStateChange.Removed:
            self._neighbours.pop(name, None)
            self._pending.discard(name)
            self._queued.discard(name)  # an answer that was on its way when it said goodbye counts no more
        elif len(self._pending) < self._settings.unresolved_max:
            self._pending.add(name)
        self._wake.set()

    async def run(
        self, found: Callable[[CandidateSeen], None], say: Callable[[SourceHealth, str], None]
    ) -> None:
        """Hand on what is heard, for ever. Raises NetworkError when our own announcement is not heard."""
        tasks = [asyncio.create_task(self._resolve(found)) for _ in range(self._settings.resolvers)]
        tasks.append(asyncio.create_task(self._notice(found, say)))
        tasks.append(asyncio.create_task(self._refresh(found)))
        try:
            await await_echo(self._heard_ourselves, self._interface, self._settings)
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # they only end by a fault of their own, which is raised here
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _notice(
        self, found: Callable[[CandidateSeen], None], say: Callable[[SourceHealth, str], None]
    ) -> None:
        """Look at each name that was heard, at once when its details came with it."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            names, self._pending = self._pending, set()
            for name in names:
                if not self._read(name, found):
                    self._ask_for(name)
            if self._heard_ourselves.is_set():
                say(SourceHealth.OK, self._describe())

    async def _refresh(self, found: Callable[[CandidateSeen], None]) -> None:
        """Find again what is still there; ask for what has expired, so that the vanished are forgotten."""
        while True:
            await asyncio.sleep(self._settings.refresh_s)
            for name in list(self._neighbours):
                if not self._read(name, found):
                    self._ask_for(name)

    def _ask_for(self, name: str) -> None:
        if name not in self._queued and not self._unresolved.full():
            self._queued.add(name)
            self._unresolved.put_nowait(name)

    async def _resolve(self, found: Callable[[CandidateSeen], None]) -> None:
        while True:
            name = await self._unresolved.get()
            if name not in self._queued:
                continue
            info = AsyncServiceInfo(SERVICE_TYPE, name)
            answered = await info.async_request(
                self._zeroconf, self._settings.resolve_timeout_s * 1000, DNSQuestionType.QM
            )
            if name not in self._queued:
                continue
            self._queued.discard(name)
            if not answered or not self._read(name, found):
                self._neighbours.pop(name, None)
            self._wake.set()

    def _read(self, name: str, found: Callable[[CandidateSeen], None]) -> bool:
        """Hand on a service whose details are all known; False when they are not (any more)."""
        info = AsyncServiceInfo(SERVICE_TYPE, name)
        if not info.load_from_cache(self._zeroconf):
            return False
        neighbour = read_neighbour(
            name,
            info.parsed_addresses(IPVersion.V4Only),
            info.port,
            info.properties,
            self._interface.on_link,
        )
        if isinstance(neighbour, str):
            self._refused = neighbour
            self._neighbours.pop(name, None)
            return True
        if neighbour.node_id == self._announcement.node_id:
            self._heard_ourselves.set()
            # the same id at another address is a cloned disk: the handshake tells the two apart
            others = tuple(a for a in neighbour.addresses if a != self._announcement.address)
            neighbour = Neighbour(neighbour.node_id, neighbour.cluster_id, neighbour.version, others)
        if neighbour.addresses and self._remember(name, neighbour):
            for candidate in neighbour.candidates():
                found(candidate)
        return True

    def _remember(self, name: str, neighbour: Neighbour) -> bool:
        """Keep a neighbour within the bound; False when there is no room for it."""
        if name not in self._neighbours and len(self._neighbours) >= self._settings.neighbours_max:
            ours = self._announcement.cluster_id
            foreign = next((n for n, held in self._neighbours.items() if held.cluster_id != ours), None)
            if neighbour.cluster_id != ours or foreign is None:
                self._refused = f"more than {self._settings.neighbours_max} neighbours"
                return False
            del self._neighbours[foreign]
        self._neighbours[name] = neighbour
        return True

    def _describe(self) -> str:
        """Return one line about what is heard.

        Hearing ourselves proves that this machine sends and receives multicast, not that the network
        carries it; only a neighbour proves that.
        """
        ours = sum(n.cluster_id == self._announcement.cluster_id for n in self._neighbours.values())
        others = len(self._neighbours) - ours
        text = f"announced on {self._where}; heard {ours} of this cluster"
        if others:
            text += f", {others} of others"
        if not self._neighbours:
            text += " (a network that carries no multicast needs seeds or the tailnet)"
        return f"{text}; ignored: {self._refused}" if self._refused else text


async def await_echo(echo: asyncio.Event, interface: InterfaceChoice, settings: MdnsSettings) -> None:
    """Wait until our own announcement was heard. Raises NetworkError when it is not in time."""
    try:
        async with asyncio.timeout(settings.echo_timeout_s):
            await echo.wait()
    except TimeoutError:
        raise NetworkError(
            f"multicast does not work on {interface.name} ({interface.address}): our own announcement "
            f"was not heard within {settings.echo_timeout_s:g} s",
            "Use seeds or the tailnet, which need no multicast",
        ) from None
