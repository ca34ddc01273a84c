"""One real agent as a process, and what a test asks of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from daisychain.cli.client import AgentClient
from daisychain.core.jobs import JobState
from daisychain.errors import DaisyChainError
from daisychain.runtime.agent_status import AgentStatus
from support.waiting import until

START_S = 60.0
"""An agent answers within a second on an idle machine; four that start beside others took 20."""

LEAVE_S = 10.0
STATUS_AGE_S = 0.03
"""Tests ask every 10 ms; three agents that answer so often would slow what is measured."""


@dataclass
class Node:
    """One agent process."""

    name: str
    state: Path
    jobs: Path
    process: subprocess.Popen[bytes]
    began_at: float
    log: Path
    trainers: set[int] = field(default_factory=set)
    signalled: tuple[int, ...] = ()
    answer: AgentStatus | None = None
    asked_at: float = -1.0

    @property
    def client(self) -> AgentClient:
        return AgentClient(self.state)

    def status(self) -> AgentStatus | None:
        """Return what it knows, at most STATUS_AGE_S old; None when it does not answer (yet)."""
        now = time.monotonic()
        if now - self.asked_at > STATUS_AGE_S:
            try:
                self.answer = self.client.status()
            except DaisyChainError:
                self.answer = None
            self.asked_at = now
        if self.answer is not None and self.answer.trainer_pid is not None:
            self.trainers.add(self.answer.trainer_pid)
        return self.answer

    def knows(self, condition: Callable[[AgentStatus], bool]) -> bool:
        status = self.status()
        return status is not None and condition(status)

    @property
    def trainer_pid(self) -> int | None:
        status = self.status()
        return status.trainer_pid if status is not None else None

    def step(self) -> int:
        """Return the committed steps of its trainer; -1 when it does not answer."""
        status = self.status()
        return status.view.trainer.step if status is not None else -1

    def world_size(self) -> int:
        status = self.status()
        if status is None or status.view.world is None or status.view.trainer.state != "training":
            return 0
        return status.view.world.world_size

    def state_of(self, job: str) -> JobState | None:
        """Return the state of the job's newest run."""
        status = self.status()
        cards = [] if status is None else [card for card in status.view.jobs if card.name == job]
        return max(cards, key=lambda card: card.submitted_at).state if cards else None

    def leads(self) -> bool:
        return self.knows(lambda status: status.view.coordinator == status.view.me.node_id)

    def await_start(self) -> None:
        """Wait until the agent answers."""
        until(
            lambda: self.status() is not None or self.process.poll() is not None,
            START_S,
            f"{self.name} is silent",
        )
        assert self.process.poll() is None, self.log.read_text()

    def signal_all(self, number: int) -> None:
        """Send a signal to the agent and its trainer; SIGCONT goes to those that were stopped."""
        if number != signal.SIGCONT and self.process.poll() is None:
            self.signalled = (self.process.pid, *filter(None, [self.trainer_pid]))
        for pid in self.signalled:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self) -> int:
        """SIGTERM; return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LEAVE_S)

    def summary(self, job: str) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.jobs / job / "result" / "summary.json").read_text())
        return loaded

    def journal(self, job: str) -> list[dict[str, Any]]:
        lines = (self.jobs / job / "result" / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


def await_leave(nodes: Iterable[tuple[str, subprocess.Popen[bytes]]]) -> list[str]:
    """Wait for agents that were asked to leave; return the names of those that did not, and were killed."""
    late = []
    for name, process in nodes:
        try:
            process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            late.append(name)
            process.kill()
            process.wait(LEAVE_S)
    return late


def is_gone(pid: int) -> bool:
    """Whether the process has ended (a zombie that nobody waits for has)."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
