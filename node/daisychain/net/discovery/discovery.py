"""All sources of candidates at once; none can stop another.

Discovery yields addresses, never trust: every one is dialled, and only an authenticated answer makes
a peer (DESIGN 5).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from daisychain.core.events import CandidateSeen
from daisychain.errors import NetworkError
from daisychain.net.discovery.mdns import MdnsSource
from daisychain.net.discovery.seeds import Seed, SeedSource
from daisychain.net.discovery.sources import Announcement, Source, SourceHealth, SourceState
from daisychain.net.discovery.tailnet import TailnetSource
from daisychain.net.interface_choice import InterfaceChoice, Network

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DiscoverySettings:
    """Which sources run, and how often a failed one is tried again.

    Attributes:
        mdns, tailnet: whether to look there.
        seeds: addresses that the configuration names, see `seeds.parse_seeds`.
        control_port: where nodes of a tailnet are expected to listen.
        tailscale: the command that answers ``status --json``.
        retry_s: seconds before a source that failed is started again; bounds its cost.
        close_s: most seconds that all sources together may take for their goodbyes.
    """

    mdns: bool = True
    tailnet: bool = True
    seeds: tuple[Seed, ...] = ()
    control_port: int = 7447
    tailscale: tuple[str, ...] = ("tailscale",)
    retry_s: float = 30.0
    close_s: float = 2.0


class Discovery:
    """Runs every source as a task of its own and hands on what they find.

    ``on_candidate`` is called in the event loop; it must not block.
    """

    def __init__(
        self,
        settings: DiscoverySettings,
        announcement: Announcement,
        interface: InterfaceChoice,
        on_candidate: Callable[[CandidateSeen], None],
    ) -> None:
        self._settings = settings
        self._on_candidate = on_candidate
        self._own_address = announcement.address
        self._states: dict[str, SourceState] = {}
        self._sources: list[Source] = []
        self._tasks: list[asyncio.Task[None]] = []
        if interface.kind is Network.TAILNET:
            self._say("mdns", SourceHealth.OFF, "a tailnet carries no multicast")
        elif settings.mdns:
            self._sources.append(MdnsSource(announcement, interface))
        else:
            self._say("mdns", SourceHealth.OFF, "switched off")
        if interface.kind is Network.LOOPBACK:
            self._say("tailnet", SourceHealth.OFF, "only this machine was asked for")
        elif settings.tailnet:
            self._sources.append(TailnetSource(settings.tailscale, settings.control_port))
        else:
            self._say("tailnet", SourceHealth.OFF, "switched off")
        if settings.seeds:
            self._sources.append(SeedSource(settings.seeds))
        else:
            self._say("seed", SourceHealth.OFF, "none configured")

    async def start(self) -> None:
        """Start every source; returns at once."""
        for source in self._sources:
            self._say(source.name, SourceHealth.WAITING, "starting")
            self._tasks.append(asyncio.create_task(self._keep(source), name=f"discovery {source.name}"))

    def states(self) -> tuple[SourceState, ...]:
        """Return where each source stands, by name."""
        return tuple(self._states[name] for name in sorted(self._states))

    async def close(self) -> None:
        """Stop every source, with its goodbye; takes at most ``close_s`` and never raises."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._settings.close_s)
        self._tasks.clear()

    async def _keep(self, source: Source) -> None:
        """Run one source for ever: whatever it raises is told, and it is started again later."""

        def say(health: SourceHealth, text: str) -> None:
            self._say(source.name, health, text)

        while True:
            try:
                await source.run(self._found, say)
                say(SourceHealth.UNAVAILABLE, "it ended")
            except NetworkError as error:
                say(SourceHealth.UNAVAILABLE, str(error))
            except Exception as error:
                log.exception("discovery by %s failed", source.name)
                say(SourceHealth.UNAVAILABLE, f"{type(error).__name__}: {error}")
            await asyncio.sleep(self._settings.retry_s)

    def _found(self, candidate: CandidateSeen) -> None:
        if candidate.address != self._own_address:
            self._on_candidate(candidate)

    def _say(self, source: str, health: SourceHealth, text: str) -> None:
        state = SourceState(source, health, text)
        before = self._states.get(source)
        self._states[source] = state
        if before is not None and before.health is not health:
            log.info("discovery by %s: %s (%s)", source, health.value, text)
