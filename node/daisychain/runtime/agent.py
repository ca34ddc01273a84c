"""A running agent: what has to be started, watched, asked for its status and closed."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Any

from daisychain.core.events import LeaveAsked
from daisychain.core.ids import Address
from daisychain.core.machine import Machine
from daisychain.core.node import NodeInfo
from daisychain.host.clock import Clock
from daisychain.net.discovery.discovery import Discovery
from daisychain.net.interface_choice import InterfaceChoice
from daisychain.net.links.refusals import RefusalLog
from daisychain.net.links.transport import Transport
from daisychain.runtime.agent_api import AgentApi
from daisychain.runtime.agent_status import AgentStatus, DiscoveryView
from daisychain.runtime.anew import Anew, BeginAnew
from daisychain.runtime.driver import Driver
from daisychain.runtime.fetcher import Fetcher
from daisychain.runtime.inbox import Inbox
from daisychain.runtime.interface_proof import InterfaceProof
from daisychain.runtime.remember import Remembered
from daisychain.runtime.scanner import Scanner
from daisychain.runtime.supervisor import Supervisor
from daisychain.runtime.user_requests import UserRequests

GOODBYE_S = 1.0
"""How long an agent that begins anew waits for its peers to hear that it leaves."""


@dataclass(frozen=True, slots=True)
class NetworkParts:
    """What an agent meets its peers by: the interface, and what was seen on it."""

    choice: InterfaceChoice
    proof: InterfaceProof
    transport: Transport
    discovery: Discovery
    refusals: RefusalLog


@dataclass(frozen=True, slots=True)
class JobParts:
    """What an agent has to do with job folders and runs."""

    scanner: Scanner
    fetcher: Fetcher
    supervisor: Supervisor


@dataclass(frozen=True, slots=True)
class CoreParts:
    """The machine and its loop."""

    machine: Machine
    inbox: Inbox
    driver: Driver
    anew: Anew


class Agent:
    """One built agent."""

    def __init__(
        self,
        me: tuple[Remembered, NodeInfo],
        core: CoreParts,
        network: NetworkParts,
        jobs: JobParts,
        clock: Clock,
    ) -> None:
        """``me``: what the node keeps over restarts, and what it says of itself."""
        self._me, self._info = me
        self._core = core
        self._network = network
        self._jobs = jobs
        self._clock = clock
        self._began_at = clock.monotonic()

    @property
    def address(self) -> Address:
        """Where its control port listens."""
        return self._info.address

    async def run(self, leaving: asyncio.Event) -> str:
        """Run until the node has left; return why. Raises `BeginAnew`."""
        core, scanner = self._core, self._jobs.scanner
        api = AgentApi(self._requests(), self._me.state.socket)
        await api.start()
        await self._network.discovery.start()
        driving = asyncio.create_task(core.driver.run(), name="driver")
        others = [
            asyncio.create_task(scanner.run(self._me.ledger, core.inbox.post)),
            asyncio.create_task(self._post_leave(leaving)),
            asyncio.create_task(core.anew.watch_address(self._network.choice)),
        ]
        ending: list[asyncio.Future[Any]] = [driving, core.anew.reason, *others]
        try:
            await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
            if core.anew.reason.done():
                why = core.anew.reason.result()
                core.inbox.post(LeaveAsked(why))
                await asyncio.wait([driving], timeout=GOODBYE_S)
                raise BeginAnew(why)
            for other in others:
                if other.done():
                    other.result()  # only the leave ends of itself; this raises what ended the others
            return await driving
        finally:
            for task in [driving, *others]:
                task.cancel()
            await asyncio.gather(driving, *others, return_exceptions=True)
            await api.close()

    async def close(self) -> None:
        """Take everything down: nothing of this agent remains."""
        await self._jobs.fetcher.close()
        await asyncio.to_thread(self._jobs.scanner.leave)
        await asyncio.gather(
            self._network.discovery.close(),
            self._jobs.supervisor.close("the node leaves"),
            self._network.transport.close(),
        )

    def status(self) -> AgentStatus:
        """Return what `daisychain status` shows."""
        now = self._clock.monotonic()
        network, jobs = self._network, self._jobs
        return AgentStatus(
            view=self._core.machine.view(now),
            discovery=tuple(
                DiscoveryView(state.source, state.health.value, state.text)
                for state in network.discovery.states()
            ),
            interface=network.choice.name,
            interface_reason=network.choice.reason,
            pid=os.getpid(),
            trainer_pid=jobs.supervisor.pid,
            uptime_s=now - self._began_at,
            refusals=network.refusals.total,
            shed=self._core.inbox.shed,
            fetches=jobs.fetcher.views(),
            problems=(*self._me.problems, *filter(None, [network.proof.unproven]), *jobs.scanner.problems()),
        )

    def _requests(self) -> UserRequests:
        return UserRequests(
            self._me.state,
            self._jobs.scanner,
            lambda: self._core.machine.view(self._clock.monotonic()),
            self.status,
            self._core.inbox.post,
            self._clock,
        )

    async def _post_leave(self, leaving: asyncio.Event) -> None:
        await leaving.wait()
        self._core.inbox.post(LeaveAsked("its user stopped it"))
