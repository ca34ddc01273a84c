"""What a test asks of a real agent, whoever started it: by its socket and its files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from daisychain.cli.client import AgentClient
from daisychain.core.jobs import JobState
from daisychain.errors import DaisyChainError
from daisychain.runtime.agent_status import AgentStatus

STATUS_AGE_S = 0.03
"""Tests ask every 10 ms; three agents that answer so often would slow what is measured."""


@dataclass
class WatchedNode:
    """One agent, by its state folder and its jobs folder.

    Attributes:
        trainers: every process id that a trainer of it was seen with.
    """

    name: str
    state: Path
    jobs: Path
    trainers: set[int] = field(default_factory=set, kw_only=True)
    answer: AgentStatus | None = field(default=None, kw_only=True)
    asked_at: float = field(default=-1.0, kw_only=True)

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

    def summary(self, job: str) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.jobs / job / "result" / "summary.json").read_text())
        return loaded

    def journal(self, job: str) -> list[dict[str, Any]]:
        lines = (self.jobs / job / "result" / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]
