"""One trainer process: started, spoken to, watched, and ended without remains."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from daisychain.core.ids import RunId
from daisychain.core.orders import LoadRun, Order, Shutdown
from daisychain.core.reports import Report
from daisychain.errors import AgentError, ProtocolError
from daisychain.host.this_process import end_orphans, reap_orphans
from daisychain.runtime.trainer_env import trainer_environment
from daisychain.runtime.trainer_log import TrainerLog
from daisychain.wire.codec import ORDER_CODEC, REPORT_CODEC
from daisychain.wire.frames import FrameReader, frame

log = logging.getLogger(__name__)

READ_BYTES = 1 << 16

SCRATCH_FOLDER = "tmp"
"""In a run's folder: what job code takes for the machine's temporary folder; gone with its trainer."""

REAP_S = 5.0
"""How often ended processes that a job let go are cleared away: they take a number each, no memory."""


@dataclass(frozen=True, slots=True)
class SupervisorSettings:
    """Bounds on the trainer.

    Attributes:
        command: what is started; the number of its socket's descriptor is appended.
        interface: the proven interface, for gloo; "" when there is none (a run on one machine).
        threads: intra-op threads where the job does not say.
        adopts: this process becomes the parent of what a trainer leaves behind, and is to end it.
        hidden: what job code must not read: the state folder, the key's file, the jobs folder.
        memory_max_bytes: most that a trainer's process may allocate; 0 = as the machine has it.
        shutdown_s: from Shutdown to SIGKILL: a result being written may take this long.
        unread_max_bytes: orders that the trainer has not read; past it it is frozen and is killed.
        log_max_bytes: size at which train.log is turned over.
    """

    command: tuple[str, ...] = (sys.executable, "-m", "daisychain.trainer")
    interface: str = ""
    threads: int = 1
    adopts: bool = False
    hidden: tuple[Path, ...] = ()
    memory_max_bytes: int = 0
    shutdown_s: float = 3.0
    unread_max_bytes: int = 4 << 20
    log_max_bytes: int = 8 << 20


class TrainerEvents:
    """What the supervisor tells its owner; both are awaited, so a slow owner slows the trainer's reports."""

    def __init__(
        self,
        reported: Callable[[RunId, Report], Awaitable[None]],
        exited: Callable[[RunId, str], Awaitable[None]],
    ) -> None:
        self.reported = reported
        self.exited = exited


@dataclass(slots=True)
class _Child:
    """One started trainer."""

    run_id: RunId
    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    log: TrainerLog
    scratch: Path
    reaping: asyncio.Task[None] | None = None
    ended_for: str = ""
    stopping: asyncio.Task[None] | None = None
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


class Supervisor:
    """Owns at most one trainer process at a time."""

    def __init__(
        self, settings: SupervisorSettings, environ: Mapping[str, str], events: TrainerEvents
    ) -> None:
        self._settings = settings
        self._environ = dict(environ)
        self.events = events
        self._child: _Child | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def run_id(self) -> RunId | None:
        """The run of the living trainer; None when there is none."""
        return self._child.run_id if self._child is not None else None

    @property
    def pid(self) -> int | None:
        """The living trainer's process id; None when there is none."""
        return self._child.process.pid if self._child is not None else None

    async def start(self, order: LoadRun) -> None:
        """Start a trainer and give it ``order``; its end is told through ``exited``, always.

        Raises `AgentError` when one is running or none can be started.
        """
        if self._child is not None:
            raise AgentError(f"a trainer for run {self._child.run_id} is still there")
        scratch = _empty(Path(order.run_folder) / SCRATCH_FOLDER)
        ours, theirs = socket.socketpair()
        output = TrainerLog(Path(order.run_folder) / "train.log", self._settings.log_max_bytes)
        try:
            process = await asyncio.create_subprocess_exec(
                *self._settings.command,
                str(theirs.fileno()),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output.child_end,
                stderr=output.child_end,
                start_new_session=True,
                cwd=order.run_folder,
                env=self._environment(scratch),
            )
        except (OSError, ValueError) as error:
            ours.close()
            output.abandon()
            raise AgentError(f"the trainer cannot be started: {error}") from error
        finally:
            theirs.close()
        output.start()
        reader, writer = await asyncio.open_connection(sock=ours)
        self._child = _Child(order.run_id, process, reader, writer, output, scratch)
        if self._settings.adopts:
            self._child.reaping = asyncio.create_task(self._reap(process.pid), name="trainer-reap")
        self._watching = asyncio.create_task(self._watch(self._child), name="trainer-watch")
        self.tell(order.run_id, self._within_bounds(order))

    def tell(self, run_id: RunId, order: Order) -> None:
        """Give the trainer of ``run_id`` an order; dropped when it is gone, killed when it reads none."""
        child = self._child
        if child is None or child.run_id != run_id or child.writer.is_closing():
            return
        if child.writer.transport.get_write_buffer_size() > self._settings.unread_max_bytes:
            self.kill(run_id, "it reads no orders")
            return
        child.writer.write(frame(ORDER_CODEC.encode(order)))

    def stop(self, run_id: RunId, reason: str) -> None:
        """Ask the trainer of ``run_id`` to end, and kill it past the bound; ``exited`` follows."""
        child = self._child
        if child is None or child.run_id != run_id or child.stopping is not None:
            return
        child.ended_for = reason
        self.tell(run_id, Shutdown(reason))
        child.stopping = asyncio.create_task(self._kill_later(child), name="trainer-stop")

    def kill(self, run_id: RunId, reason: str) -> None:
        """End the trainer of ``run_id`` with SIGKILL now; ``exited`` follows."""
        child = self._child
        if child is None or child.run_id != run_id:
            return
        child.ended_for = child.ended_for or reason
        _kill_group(child.process.pid)

    async def close(self, reason: str) -> None:
        """End the trainer, if there is one, and wait until nothing of it remains."""
        child, watching = self._child, self._watching
        if child is not None:
            self.stop(child.run_id, reason)
        if watching is not None:
            await watching

    async def _kill_later(self, child: _Child) -> None:
        await asyncio.sleep(self._settings.shutdown_s)
        log.warning("the trainer did not end within %s s of being asked; killed", self._settings.shutdown_s)
        _kill_group(child.process.pid)

    async def _watch(self, child: _Child) -> None:
        """Read reports until the trainer ends, then clear up after it and say how it ended."""
        reading = asyncio.create_task(self._read(child), name="trainer-read")
        try:
            code = await child.process.wait()
        finally:
            _kill_group(child.process.pid)  # data workers, were there any left
            if self._settings.adopts:
                await self._end_orphans(child)
        with contextlib.suppress(TimeoutError):  # its last words are still in the socket
            await asyncio.wait_for(asyncio.shield(reading), 1.0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        if child.stopping is not None:
            child.stopping.cancel()
        child.writer.close()
        with contextlib.suppress(OSError):
            await child.writer.wait_closed()
        await asyncio.to_thread(child.log.join, 1.0)
        await asyncio.to_thread(shutil.rmtree, child.scratch, ignore_errors=True)
        self._child = None
        await self.events.exited(child.run_id, exit_in_words(code, child.ended_for))

    async def _end_orphans(self, child: _Child) -> None:
        """End what the job started and took out of its trainer's group."""
        if child.reaping is not None:
            child.reaping.cancel()
        left = await asyncio.to_thread(end_orphans)
        if left:
            log.warning("%d processes that the run %s started could not be ended", left, child.run_id)

    async def _reap(self, pid: int) -> None:
        """Clear away what the job started and let go, whenever it has ended."""
        while True:
            await asyncio.sleep(REAP_S)
            reap_orphans(pid)

    def _within_bounds(self, order: LoadRun) -> LoadRun:
        hidden = tuple(map(str, self._settings.hidden))
        return replace(order, hidden=hidden, memory_max_bytes=self._settings.memory_max_bytes)

    def _environment(self, scratch: Path) -> dict[str, str]:
        settings = self._settings
        return trainer_environment(self._environ, settings.interface, settings.threads, str(scratch))

    async def _read(self, child: _Child) -> None:
        frames = FrameReader()
        try:
            while data := await child.reader.read(READ_BYTES):
                for payload in frames.feed(data):
                    await self.events.reported(child.run_id, REPORT_CODEC.decode(payload))
        except ProtocolError as error:
            self.kill(child.run_id, f"it does not speak the protocol: {error}")
        except OSError:
            return  # its end of the pair went with it
        if not child.ended_for:  # it closed the pair and may live on: it is of no use
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(child.process.wait(), self._settings.shutdown_s)
                return
            self.kill(child.run_id, "it closed its socket and lived on")


def _empty(folder: Path) -> Path:
    """Return ``folder``, made anew; without room for it the job has no temporary files, and will say so."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700)
    return folder


def exit_in_words(code: int, ended_for: str) -> str:
    """Return how a process ended, for people: the exit code or signal, and why it was ended."""
    if code >= 0:
        how = "exited with code 0" if code == 0 else f"exited with code {code}: its log has the reason"
    else:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        how = f"killed by {name}"
        if not ended_for and name == "SIGKILL":
            how += " (out of memory?)"
    return f"{how} ({ended_for})" if ended_for else how


def _kill_group(pid: int) -> None:
    """Send SIGKILL to the trainer's process group; it leads one of its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
