"""The agent's hands: each effect of the machine done with the adapter that it needs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Protocol, assert_never

from daisychain.core.effects import (
    CloseLink,
    Dial,
    DropFetch,
    Effect,
    Fetch,
    KillTrainer,
    Leave,
    Level,
    Note,
    PaceBundles,
    Part,
    PersistIncarnation,
    PersistTerm,
    RecordJob,
    Send,
    StartTrainer,
    StopTrainer,
    Tell,
)
from daisychain.core.ids import Address, NodeId, RunId
from daisychain.core.jobs import JobCard, JobState
from daisychain.core.messages import Message
from daisychain.core.node import NodeInfo
from daisychain.core.orders import LoadRun
from daisychain.errors import DaisyChainError, ProtocolError, StorageError
from daisychain.host.clock import Clock
from daisychain.host.ledger import Ledger
from daisychain.host.run_folders import RunFolders
from daisychain.host.state_folder import NodeRecord
from daisychain.runtime.notes import NoteLog
from daisychain.runtime.supervisor import Supervisor

ImmediateEffect = (
    Dial
    | CloseLink
    | Send
    | StopTrainer
    | KillTrainer
    | Tell
    | Fetch
    | DropFetch
    | PaceBundles
    | Note
    | Leave
)


class Links(Protocol):
    """The transport, as the agent uses it."""

    def dial(self, address: Address) -> None:
        """Open a link; LinkUp or DialFailed follows."""

    def send(self, node_id: NodeId, message: Message) -> None:
        """Send over the link that we dialled."""

    def close_link(self, node_id: NodeId, reason: str) -> None:
        """Close the link that we dialled."""

    def set_info(self, info: NodeInfo) -> None:
        """Say this of ourselves from now on."""


class Jobs(Protocol):
    """Where the files of a run are."""

    def load_order(self, card: JobCard) -> LoadRun:
        """Return the trainer's first order; raises `DaisyChainError` when the job is not here as told."""


class Bundles(Protocol):
    """What moves job folders and results between nodes."""

    def fetch(self, order: Fetch) -> None:
        """Fetch it; Fetched or FetchFailed follows."""

    def drop(self, run_id: RunId, part: Part) -> None:
        """Fetch it no longer."""

    def pace(self, bytes_per_s: float) -> None:
        """Move bundles no faster than this, in and out; 0 = as fast as it goes."""


@dataclass(slots=True)
class Memory:
    """What the node keeps over restarts, and what it says of itself."""

    record: NodeRecord
    ledger: Ledger
    runs: RunFolders
    info: NodeInfo

    async def tidy(self, run_id: RunId) -> None:
        """Remove the checkpoints of a run that has ended; its trainer may have written one since."""
        card = self.ledger.card(run_id)
        if card is not None and card.state.ended:
            await asyncio.to_thread(self.runs.forget_checkpoints, run_id)


class Hands:
    """Performs effects in the order in which they come."""

    def __init__(
        self,
        memory: Memory,
        links: Links,
        supervisor: Supervisor,
        files: tuple[Jobs, Bundles],
        clock: Clock,
    ) -> None:
        self._memory = memory
        self._links = links
        self._supervisor = supervisor
        self._jobs, self._bundles = files
        self._clock = clock
        self._notes = NoteLog()

    async def perform(self, effect: Effect) -> None:
        """Do ``effect``. Raises `StorageError` when a term or incarnation cannot be made durable."""
        match effect:
            case PersistTerm(term):
                await asyncio.to_thread(self._memory.record.save_term, term)
            case PersistIncarnation(incarnation):
                await asyncio.to_thread(self._memory.record.save_incarnation, incarnation)
                self._memory.info = replace(self._memory.info, incarnation=incarnation)
                self._links.set_info(self._memory.info)
            case RecordJob(card):
                await self._record(card)
            case StartTrainer(card):
                await self._start(card)
            case _:
                self._at_once(effect)

    def _at_once(self, effect: ImmediateEffect) -> None:
        """Do what needs no waiting."""
        match effect:
            case Dial(address):
                self._links.dial(address)
            case CloseLink(node_id, reason):
                self._links.close_link(node_id, reason)
            case Send(node_id, message):
                self._send(node_id, message)
            case StopTrainer(run_id, reason):
                self._supervisor.stop(run_id, reason)
            case KillTrainer(run_id, reason):
                self._supervisor.kill(run_id, reason)
            case Tell(run_id, order):
                self._supervisor.tell(run_id, order)
            case Fetch():
                self._bundles.fetch(effect)
            case DropFetch(run_id, part):
                self._bundles.drop(run_id, part)
            case PaceBundles(bytes_per_s):
                self._bundles.pace(bytes_per_s)
            case Note():
                self._notes.write(effect, self._clock.monotonic())
            case Leave():
                pass  # the driver's own affair
            case _:
                assert_never(effect)

    def _send(self, node_id: NodeId, message: Message) -> None:
        """Send; a message that no peer would take (too many jobs, too long reasons) is said, not fatal."""
        try:
            self._links.send(node_id, message)
        except ProtocolError as error:
            self._notes.write(Note(Level.ERROR, str(error), "send"), self._clock.monotonic())

    async def _record(self, card: JobCard) -> None:
        """Write the ledger; a full disk costs the memory of a run, not the chain."""
        try:
            await asyncio.to_thread(self._memory.ledger.record, card)
        except StorageError as error:
            note = Note(
                Level.ERROR, f"run {card.run_id} of {card.name} is not in the ledger: {error}", "ledger"
            )
            self._notes.write(note, self._clock.monotonic())
        await self._memory.tidy(card.run_id)

    async def _start(self, card: JobCard) -> None:
        if self._memory.ledger.card(card.run_id) is None:
            # Another node may have been asked for this run: when all have died, this one alone knows of it.
            await self._record(replace(card, state=JobState.QUEUED))
        try:
            order = await asyncio.to_thread(self._jobs.load_order, card)
            await self._supervisor.start(order)
        except DaisyChainError as error:
            await self._supervisor.events.exited(card.run_id, f"could not be started: {error}")
