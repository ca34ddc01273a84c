"""One machine of the rig: a real agent and its trainer, and what can be done to them."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil

from rig.stops import Board
from support.agent_node import LEAVE_S, Node, is_gone
from support.waiting import until

STOPPED_S = 5.0


class Place(Protocol):
    """Where a machine's processes run; see `lan.Place`."""

    @property
    def name(self) -> str: ...

    @property
    def namespace(self) -> str:
        """Its network namespace; "" = this machine's own."""

    @property
    def address(self) -> str: ...

    def starting(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs ``command`` there, under the same process id."""


def spawn(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process whose output is appended to ``log``."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=dict(environment)
        )


@dataclass(kw_only=True)
class RigNode(Node):
    """An agent on the rig, started again as often as wanted.

    Attributes:
        command, environment: what its process is started with.
        board: where its trainers halt.
    """

    place: Place
    command: list[str]
    environment: dict[str, str]
    board: Board
    frozen: list[int] = field(default_factory=list)

    def start(self) -> None:
        """Start it again, on the disk that it left."""
        assert not self.running, f"{self.name} runs already"
        self.process = spawn(self.command, self.log, self.environment)
        self.began_at = time.monotonic()
        self.answer, self.asked_at = None, -1.0

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def folder(self) -> Path:
        """What is its own: jobs, state, log."""
        return self.jobs.parent

    def trainer(self) -> int:
        """Return its living trainer's process id."""
        pid = self.board.pid_of(self.name)
        assert pid is not None, f"{self.name} has no trainer"
        self.trainers.add(pid)
        return pid

    def has_trainer(self) -> bool:
        return self.board.pid_of(self.name) is not None

    # Each of these returns Unix seconds just before it was done. -----------------------------------------

    def kill(self) -> float:
        """SIGKILL trainer and agent, as a power cut would."""
        pids = [self.trainer()] if self.has_trainer() else []
        at = time.time()
        for pid in (*pids, self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(LEAVE_S)
        return at

    def kill_agent(self) -> float:
        """SIGKILL the agent alone; the kernel ends its trainer."""
        if self.has_trainer():
            self.trainer()
        at = time.time()
        self.process.kill()
        self.process.wait(LEAVE_S)
        return at

    def kill_trainer(self) -> float:
        """SIGKILL the trainer's own process, none that it started."""
        pid = self.trainer()
        at = time.time()
        os.kill(pid, signal.SIGKILL)
        until(lambda: is_gone(pid), STOPPED_S, f"{self.name}'s trainer {pid} does not die")
        return at

    def freeze(self, *, agent: bool = True, trainer: bool = True) -> float:
        """SIGSTOP what is named, and wait until it stands still."""
        pids = [self.process.pid] if agent else []
        if trainer and self.has_trainer():
            pids.append(self.trainer())
        at = time.time()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        self.frozen += pids
        until(lambda: all(_stopped(pid) for pid in pids), STOPPED_S, f"{self.name} does not stand still")
        return at

    def thaw(self) -> float:
        """SIGCONT everything that was stopped."""
        at = time.time()
        for pid in self.frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.frozen.clear()
        return at

    def terminate(self) -> float:
        """SIGTERM the agent: the node leaves in good order."""
        at = time.time()
        self.process.send_signal(signal.SIGTERM)
        return at

    def starve(self, spare_bytes: int) -> float:
        """Leave the running trainer so much more address space: what it asks for beyond is refused."""
        pid = self.trainer()
        at = time.time()
        limit = psutil.Process(pid).memory_info().vms + spare_bytes
        resource.prlimit(pid, resource.RLIMIT_AS, (limit, limit))
        return at

    def trainer_log(self) -> str:
        """Return what its trainers said of every run."""
        logs = sorted((self.state / "runs").glob("*/train.log"))
        return "".join(log.read_text(errors="replace") for log in logs)

    def story(self, most: int = 4000) -> str:
        """Return the ends of its logs, for people."""
        parts = [f"--- {self.name}\n{self.log.read_text(errors='replace')[-most:]}"]
        for log in sorted((self.state / "runs").glob("*/train.log")):
            parts.append(
                f"--- {self.name} {log.parent.name}/{log.name}\n{log.read_text(errors='replace')[-most:]}"
            )
        return "\n".join(parts)


def _stopped(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE))
    except psutil.NoSuchProcess:
        return True
