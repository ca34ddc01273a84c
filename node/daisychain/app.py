"""The composition root: the only file that wires adapters to the core."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from daisychain import __version__
from daisychain.config import NodeConfig
from daisychain.core.events import Event, LeaveAsked, LinkUp, TrainerExited, TrainerReported
from daisychain.core.ids import Address, NodeId, RunId
from daisychain.core.machine import Machine
from daisychain.core.node import NodeInfo
from daisychain.core.reports import Report, RunFinished
from daisychain.errors import ConfigError, NetworkError
from daisychain.host.bundles.fetched import FetchedCopies
from daisychain.host.clock import SystemClock
from daisychain.host.gpu import choose_device, list_gpus
from daisychain.host.hardware import WINDOWS_REMEDY, Hardware, hardware, why_no_training
from daisychain.host.job_folder import JobFolderSettings
from daisychain.host.machine_id import machine_id
from daisychain.host.state_folder import StateFolder
from daisychain.host.storage import make_folder
from daisychain.host.this_process import adopt_orphans, shut_memory
from daisychain.host.versions import torch_version
from daisychain.net.bundles.client import BundleClient
from daisychain.net.bundles.server import BundleServer
from daisychain.net.bundles.settings import BundleSettings
from daisychain.net.discovery.discovery import Discovery
from daisychain.net.discovery.sources import Announcement
from daisychain.net.discovery.tailnet import read_tailnet
from daisychain.net.identity.cluster_key import ClusterKey
from daisychain.net.identity.node_identity import gives_way
from daisychain.net.interface_choice import (
    InterfaceChoice,
    Network,
    choose_interface,
    why_gone,
    why_not_proven,
)
from daisychain.net.interfaces import default_route_address, list_interfaces
from daisychain.net.links.refusals import RefusalLog
from daisychain.net.links.transport import Transport, TransportSettings
from daisychain.runtime.agent_api import AgentApi
from daisychain.runtime.agent_status import AgentStatus, DiscoveryView
from daisychain.runtime.alone import Alone, claim_alone
from daisychain.runtime.driver import Driver, DriverSettings
from daisychain.runtime.fetcher import Fetcher
from daisychain.runtime.landing import JobLanding, LandingPlace
from daisychain.runtime.notes import start_logging
from daisychain.runtime.performer import Hands, Memory
from daisychain.runtime.remember import Remembered, remember, take_new_id
from daisychain.runtime.scanner import Scanner, TrainingWishes
from daisychain.runtime.shelf import JobShelf
from daisychain.runtime.supervisor import Supervisor, TrainerEvents
from daisychain.runtime.user_requests import UserRequests

log = logging.getLogger("daisychain.agent")

INTERFACE_CHECK_S = 5.0
"""How often the agent looks whether its address is still there (a laptop changes its network)."""

AGAIN_S = 5.0
"""Pause before an agent that lost its address, or its node id to a clone, begins anew."""


@dataclass(frozen=True, slots=True)
class Started:
    """What a person is told when the agent runs."""

    name: str
    node_id: NodeId
    address: Address
    interface: InterfaceChoice
    new_key: str
    """The cluster key when it was made just now; empty otherwise."""


class _BeginAnew(Exception):
    """The agent must be built again: its address is gone, or another machine holds its node id."""


async def run_agent(config: NodeConfig, started: Callable[[Started], None]) -> str:
    """Run the agent until it is asked to leave; return why it left.

    Raises `DaisyChainError` of the part that could not be set up; the CLI shows it.
    """
    _refuse_platform()
    shut_memory()
    state = StateFolder(config.state_folder)
    state.lock()
    try:
        start_logging(state.log, config.log_level)
        make_folder(config.jobs_folder, mode=0o755)
        new_key = await asyncio.to_thread(_make_key, config)
        leaving = asyncio.Event()
        with _signals(leaving):
            ran_before = False
            while True:
                try:
                    return await _run_once(
                        config, state, leaving, lambda it: started(replace(it, new_key=new_key))
                    )
                except _BeginAnew as why:
                    log.warning("the agent begins anew: %s", why)
                    ran_before = True
                except NetworkError as error:
                    if not ran_before:
                        raise
                    log.warning("%s; trying again in %s s", error, AGAIN_S)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(leaving.wait(), AGAIN_S)
                    return "asked to leave"
    finally:
        state.unlock()


async def run_alone(
    config: NodeConfig, folder: Path, tell: Callable[[Report], None], anew: bool = False
) -> RunFinished:
    """Train the job in ``folder`` on this machine alone; ``tell`` gets every report of the trainer.

    A run that was interrupted goes on from its last checkpoint, or begins ``anew``. The same trainer and loop
    as in a chain, with a world of one. Raises `JobError`, `WorldError`, `AgentError` and `StorageError`,
    and `ConfigError` on native Windows.
    """
    _refuse_platform()
    facts = await asyncio.to_thread(hardware)
    alone = Alone(tell)
    supervisor = Supervisor(
        replace(config.supervisor_settings("", facts), adopts=adopt_orphans()),
        os.environ,
        TrainerEvents(alone.reported, alone.exited),
    )
    state = StateFolder(config.state_folder)
    with contextlib.ExitStack() as held:
        claim = claim_alone(state, folder, anew)
        order = await asyncio.to_thread(held.enter_context, claim)
        order = replace(
            order,
            checkpoint_every_s=config.checkpoint_every_s,
            cache_max_bytes=config.cache_max_bytes or 0,
        )
        return await alone.train(supervisor, order)


async def _run_once(
    config: NodeConfig, state: StateFolder, leaving: asyncio.Event, started: Callable[[Started], None]
) -> str:
    """Build an agent, run it, and take it down; return why it left."""
    me = await asyncio.to_thread(remember, state, config.key_path)
    choice = await _choose_interface(config)
    facts = await asyncio.to_thread(hardware)
    agent = await _Agent.build(config, me, choice, facts)
    try:
        started(Started(config.name, me.identity.node_id, agent.address, choice, ""))
        return await agent.run(leaving)
    finally:
        await agent.close()


class _Agent:
    """One built agent: everything that has to be started and closed."""

    def __init__(self, config: NodeConfig, me: Remembered, choice: InterfaceChoice, facts: Hardware) -> None:
        self._config = config
        self._me = me
        self._choice = choice
        self._clock = SystemClock()
        self._began_at = self._clock.monotonic()
        self._anew: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._unproven = ""
        self._refusals = RefusalLog(log.warning, self._clock.monotonic)
        self._scanner = Scanner(
            me.identity.node_id,
            me.state,
            config.jobs_folder,
            JobFolderSettings(),
            TrainingWishes(config.min_nodes, config.checkpoint_every_s, config.cache_max_bytes or 0),
        )
        settings = BundleSettings()
        self._server = BundleServer(JobShelf(self._scanner.bundle, self._scanner.read_manifest), settings)
        self._transport = Transport(
            me.identity,
            me.key,
            TransportSettings(),
            self._post,
            refusals=self._refusals,
            on_clone=self._met_clone,
        )
        self._transport.have_answered(self._server)
        client = BundleClient(self._transport.contexts, settings)
        landing = JobLanding(
            LandingPlace(me.state.incoming, config.jobs_folder, config.fetched_max_bytes),
            FetchedCopies(me.state.fetched, config.jobs_folder),
            self._clock,
        )
        self._fetcher = Fetcher(client, (client.pace, self._server.pace), landing, self._in_use, self._post)
        self._supervisor = Supervisor(
            replace(config.supervisor_settings(choice.name, facts), adopts=adopt_orphans()),
            os.environ,
            TrainerEvents(self._reported, self._exited),
        )
        self._machine: Machine
        self._hands: Hands
        self._driver: Driver
        self._discovery: Discovery
        self._info: NodeInfo
        self.address: Address

    @classmethod
    async def build(
        cls, config: NodeConfig, me: Remembered, choice: InterfaceChoice, facts: Hardware
    ) -> _Agent:
        """Open the control port and put the parts together; raises `NetworkError` (the port is taken)."""
        agent = cls(config, me, choice, facts)
        torch = torch_version()
        gpus = await asyncio.to_thread(list_gpus)
        machine = await asyncio.to_thread(machine_id)
        agent.address = await agent._transport.start(choice.address, config.port)
        # from here to set_info nothing may wait: the first connection comes with the loop's next turn
        info = NodeInfo(
            node_id=me.identity.node_id,
            name=config.name,
            incarnation=me.record.incarnation,
            machine_id=machine,
            address=agent.address,
            version=__version__,
            torch_version=torch or "",
            platform=facts.platform,
            cores=facts.cores,
            memory_bytes=facts.memory_bytes,
            device=choose_device(gpus, torch, facts.platform).device,
        )
        agent._info = info
        agent._transport.set_info(info)
        agent._machine = Machine(
            info,
            me.key.cluster_id,
            config.core_settings(),
            me.record.term,
            me.ledger.cards(),
            secrets.randbits(64),
            agent._clock.monotonic(),
        )
        agent._hands = hands = Hands(
            Memory(me.record, me.ledger, me.state.runs, info),
            agent._transport,
            agent._supervisor,
            (agent._scanner, agent._fetcher),
            agent._clock,
        )
        agent._driver = Driver(agent._machine, hands, agent._clock, DriverSettings())
        announcement = Announcement(info.node_id, me.key.cluster_id, agent.address, __version__)
        agent._discovery = Discovery(config.discovery_settings(), announcement, choice, agent._post)
        return agent

    async def run(self, leaving: asyncio.Event) -> str:
        """Run until the node has left; raises `_BeginAnew`."""
        api = AgentApi(
            UserRequests(
                self._me.state,
                self._scanner,
                lambda: self._machine.view(self._clock.monotonic()),
                self._status,
                self._driver.post,
                self._clock,
            ),
            self._me.state.socket,
        )
        await api.start()
        await self._discovery.start()
        driving = asyncio.create_task(self._driver.run(), name="driver")
        others = [
            asyncio.create_task(self._scanner.run(self._clock, self._me.ledger, self._driver.post)),
            asyncio.create_task(self._post_leave(leaving)),
            asyncio.create_task(self._watch_address()),
        ]
        ending: list[asyncio.Future[Any]] = [driving, self._anew, *others]
        try:
            await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
            if self._anew.done():
                self._driver.post(LeaveAsked(self._anew.result()))
                await asyncio.wait([driving], timeout=1.0)
                raise _BeginAnew(self._anew.result())
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
        await self._fetcher.close()
        await asyncio.gather(
            self._discovery.close(), self._supervisor.close("the node leaves"), self._transport.close()
        )

    def _post(self, event: Event) -> None:
        if isinstance(event, LinkUp):
            self._look_at(event)
        self._driver.post(event)

    def _look_at(self, link: LinkUp) -> None:
        """Say so when a peer was reached over another address than the one that gloo will bind."""
        unproven = why_not_proven(self._choice, link.local_host) or ""
        if unproven and unproven != self._unproven:
            log.warning("%s", unproven)
        self._unproven = unproven

    async def _reported(self, run_id: RunId, report: Report) -> None:
        self._driver.post(TrainerReported(run_id, report))

    async def _exited(self, run_id: RunId, reason: str) -> None:
        await self._hands.tidy(run_id)
        self._driver.post(TrainerExited(run_id, reason))

    async def _post_leave(self, leaving: asyncio.Event) -> None:
        await leaving.wait()
        self._driver.post(LeaveAsked("its user stopped it"))

    async def _watch_address(self) -> None:
        """Notice that the chosen address is gone or has moved (another WiFi, a container's new network)."""
        while True:
            await asyncio.sleep(INTERFACE_CHECK_S)
            gone = why_gone(self._choice, await asyncio.to_thread(list_interfaces))
            if gone is not None and not self._anew.done():
                self._anew.set_result(gone)

    def _met_clone(self, theirs: NodeInfo | None) -> None:
        """Another machine has our node id: exactly one of the two takes a new one."""
        if self._anew.done() or not (theirs is None or gives_way(self._info, theirs)):
            return
        take_new_id(self._me.state)
        named = "another machine" if theirs is None else f"{theirs.name} at {theirs.address}"
        self._anew.set_result(
            f"{named} has the same node id (a copied state folder); this node took a new one"
        )

    def _in_use(self) -> frozenset[str]:
        """Return the digests of the jobs of which a run has not ended."""
        jobs = self._machine.view(self._clock.monotonic()).jobs
        return frozenset(card.digest for card in jobs if not card.state.ended)

    def _status(self) -> AgentStatus:
        now = self._clock.monotonic()
        states = self._discovery.states()
        return AgentStatus(
            view=self._machine.view(now),
            discovery=tuple(DiscoveryView(state.source, state.health.value, state.text) for state in states),
            interface=self._choice.name,
            interface_reason=self._choice.reason,
            pid=os.getpid(),
            trainer_pid=self._supervisor.pid,
            uptime_s=now - self._began_at,
            refusals=self._refusals.total,
            shed=self._driver.shed,
            fetches=self._fetcher.views(),
            problems=(*self._me.problems, *filter(None, [self._unproven, self._scanner.problem])),
        )


def _refuse_platform() -> None:
    """Raise `ConfigError` where gloo cannot work: before anything is written or started."""
    refusal = why_no_training(sys.platform)
    if refusal is not None:
        raise ConfigError(refusal, WINDOWS_REMEDY)


def _make_key(config: NodeConfig) -> str:
    """Return the cluster key's text when it had to be made: this is a first node."""
    key, made = ClusterKey.load_or_create(config.key_path)
    return key.text if made else ""


async def _choose_interface(config: NodeConfig) -> InterfaceChoice:
    """Return what the chain runs over; raises `NetworkError` with every interface and why not."""
    settings = config.discovery_settings()
    tailnet: tuple[str, ...] = ()
    if config.tailnet and config.network in (Network.AUTO, Network.TAILNET):
        with contextlib.suppress(NetworkError):  # told by discovery and doctor
            tailnet = (await read_tailnet(settings.tailscale)).addresses
    return await asyncio.to_thread(
        lambda: choose_interface(
            list_interfaces(), config.interface, config.network, default_route_address(), tailnet
        )
    )


@contextlib.contextmanager
def _signals(leaving: asyncio.Event) -> Iterator[None]:
    """Have SIGTERM and SIGINT set ``leaving``; a second one has no further effect."""
    loop = asyncio.get_running_loop()
    names = (signal.SIGTERM, signal.SIGINT)
    for name in names:
        loop.add_signal_handler(name, leaving.set)
    try:
        yield
    finally:
        for name in names:
            loop.remove_signal_handler(name)
