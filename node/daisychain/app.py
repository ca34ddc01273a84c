"""The composition root: the only file that wires adapters to the core."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from daisychain import __version__
from daisychain.config import NodeConfig
from daisychain.core.events import TrainerExited, TrainerReported
from daisychain.core.ids import Address, NodeId, RunId
from daisychain.core.machine import Machine
from daisychain.core.node import NodeInfo
from daisychain.core.reports import Report, RunFinished
from daisychain.errors import ConfigError, NetworkError
from daisychain.host.bundles.fetched import FetchedCopies
from daisychain.host.clock import Clock, SystemClock
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
from daisychain.net.discovery.tailnet import read_tailnet, why_no_interface
from daisychain.net.identity.cluster_key import ClusterKey
from daisychain.net.interface_choice import (
    InterfaceChoice,
    Network,
    choose_interface,
)
from daisychain.net.interfaces import default_route_address, list_interfaces
from daisychain.net.links.refusals import RefusalLog
from daisychain.net.links.transport import Transport, TransportSettings
from daisychain.runtime.agent import Agent, CoreParts, JobParts, NetworkParts
from daisychain.runtime.alone import Alone, claim_alone
from daisychain.runtime.anew import Anew, BeginAnew
from daisychain.runtime.driver import Driver
from daisychain.runtime.fetcher import Fetcher
from daisychain.runtime.inbox import Inbox
from daisychain.runtime.interface_proof import InterfaceProof
from daisychain.runtime.landing import BundleLanding, LandingPlace
from daisychain.runtime.notes import start_logging
from daisychain.runtime.performer import Hands, Memory
from daisychain.runtime.remember import Remembered, remember
from daisychain.runtime.scanner import Scanner, TrainingWishes
from daisychain.runtime.shelf import JobShelf
from daisychain.runtime.stop_signals import stop_signals
from daisychain.runtime.supervisor import Supervisor, TrainerEvents
from daisychain.runtime.tailnet_wait import TailnetWait

log = logging.getLogger("daisychain.agent")

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
        with stop_signals() as leaving:
            ran_before = False
            while True:
                try:
                    return await _run_once(
                        config, state, leaving, lambda it: started(replace(it, new_key=new_key))
                    )
                except BeginAnew as why:
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
    supervisor = _supervisor(config, "", facts, TrainerEvents(alone.reported, alone.exited))
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
    if config.network is Network.TAILNET:
        found = await TailnetWait(state.socket).until_up(partial(_choose_interface, config), leaving)
        if found is None:
            return "asked to leave"
        choice = found
    else:
        choice = await _choose_interface(config)
    agent = await _build(config, me, choice)
    try:
        started(Started(config.name, me.identity.node_id, agent.address, choice, ""))
        return await agent.run(leaving)
    finally:
        await agent.close()


async def _build(config: NodeConfig, me: Remembered, choice: InterfaceChoice) -> Agent:
    """Put the parts of an agent together; its control port is open then.

    Raises `NetworkError` (the port is taken).
    """
    clock, inbox, anew = SystemClock(), Inbox(), Anew()
    facts = await asyncio.to_thread(hardware)
    info = await _describe(config, me, Address(choice.address, config.port), facts)
    scanner = Scanner(
        me.identity.node_id,
        me.state,
        config.jobs_folder,
        JobFolderSettings(),
        clock,
        TrainingWishes(config.min_nodes, config.checkpoint_every_s, config.cache_max_bytes or 0),
    )
    proof = InterfaceProof(choice, inbox.post)
    refusals = RefusalLog(log.warning, clock.monotonic)
    bundles, links = BundleSettings(), TransportSettings()
    server = BundleServer(JobShelf(scanner.bundle, scanner.read_manifest), bundles)
    transport = Transport(
        me.identity,
        me.key,
        links,
        proof.post,
        refusals=refusals,
        on_clone=partial(anew.met_clone, me.state, info),
    )
    transport.have_answered(server)
    info = replace(info, address=await transport.start(choice.address, config.port))
    transport.set_info(
        info
    )  # nothing may wait before this: the first connection comes with the loop's next turn
    machine = Machine(
        info,
        me.key.cluster_id,
        config.core_settings(),
        me.record.term,
        me.ledger.cards(),
        secrets.randbits(64),
        clock.monotonic(),
    )
    memory = Memory(me.record, me.ledger, me.state.runs, info)
    supervisor = _supervisor(config, choice.name, facts, _trainer_events(memory, inbox))
    client = BundleClient(transport.contexts, bundles, links.kernel_silence_s)
    landing = BundleLanding(
        LandingPlace(me.state.incoming, config.jobs_folder, config.fetched_max_bytes),
        FetchedCopies(me.state.fetched, config.jobs_folder),
        scanner,
        clock,
    )
    await asyncio.to_thread(landing.sweep)
    fetcher = Fetcher(
        client, (client.pace, server.pace), landing, partial(_in_use, machine, clock), inbox.post
    )
    hands = Hands(memory, transport, supervisor, (scanner, fetcher), clock)
    announcement = Announcement(info.node_id, me.key.cluster_id, info.address, __version__)
    discovery = Discovery(config.discovery_settings(), announcement, choice, inbox.post)
    return Agent(
        (me, info),
        CoreParts(machine, inbox, Driver(machine, hands, inbox, clock), anew),
        NetworkParts(choice, proof, transport, discovery, refusals),
        JobParts(scanner, fetcher, supervisor),
        clock,
    )


async def _describe(config: NodeConfig, me: Remembered, address: Address, facts: Hardware) -> NodeInfo:
    """Return what this node says of itself."""
    torch = torch_version()
    gpus = await asyncio.to_thread(list_gpus)
    return NodeInfo(
        node_id=me.identity.node_id,
        name=config.name,
        incarnation=me.record.incarnation,
        machine_id=await asyncio.to_thread(machine_id),
        address=address,
        version=__version__,
        torch_version=torch or "",
        platform=facts.platform,
        cores=facts.cores,
        memory_bytes=facts.memory_bytes,
        device=choose_device(gpus, torch, facts.platform).device,
    )


def _supervisor(config: NodeConfig, interface: str, facts: Hardware, events: TrainerEvents) -> Supervisor:
    settings = replace(config.supervisor_settings(interface, facts), adopts=adopt_orphans())
    return Supervisor(settings, os.environ, events)


def _trainer_events(memory: Memory, inbox: Inbox) -> TrainerEvents:
    """Return what becomes of the reports and the end of a trainer."""

    async def reported(run_id: RunId, report: Report) -> None:
        inbox.post(TrainerReported(run_id, report))

    async def exited(run_id: RunId, reason: str) -> None:
        await memory.tidy(run_id)
        inbox.post(TrainerExited(run_id, reason))

    return TrainerEvents(reported, exited)


def _in_use(machine: Machine, clock: Clock) -> frozenset[str]:
    """Return the digests of the jobs of which a run has not ended."""
    jobs = machine.view(clock.monotonic()).jobs
    return frozenset(card.digest for card in jobs if not card.state.ended)


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
    """Return what the chain runs over; raises `NetworkError` with every interface and why not.

    On the tailnet alone it says instead what keeps the tailnet from being up, when that is known.
    """
    settings = config.discovery_settings()
    addresses: tuple[str, ...] = ()
    trouble: NetworkError | None = None
    if config.tailnet and config.network in (Network.AUTO, Network.TAILNET):
        try:
            tailnet = await read_tailnet(settings.tailscale)
            addresses, trouble = tailnet.addresses, why_no_interface(tailnet)
        except NetworkError as error:  # on a LAN it is told by discovery and doctor
            trouble = error
    try:
        return await asyncio.to_thread(
            lambda: choose_interface(
                list_interfaces(), config.interface, config.network, default_route_address(), addresses
            )
        )
    except NetworkError:
        if trouble is not None and config.network is Network.TAILNET and not config.interface:
            raise trouble from None
        raise
