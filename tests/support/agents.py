"""Real agents as processes on this machine, each with its own state folder and copy of the jobs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

from daisychain.cli.client import AgentClient
from daisychain.core.jobs import JobState
from daisychain.errors import DaisyChainError
from daisychain.net.identity.cluster_key import ClusterKey
from daisychain.runtime.agent_status import AgentStatus
from support.cgroups import CpuGroup
from support.waiting import until

START_S = 20.0
LEAVE_S = 10.0
STATUS_AGE_S = 0.03
"""Tests ask every 10 ms; three agents that answer so often would slow what is measured."""

SLOW_COUNTING = '''
"""One float64 parameter a sample; each visit adds exactly 1 to it. Slow until the test is in a hurry."""

import time
from pathlib import Path

import torch
from torch import nn

SAMPLES, BATCH = 256, 32
HURRY = Path({hurry!r})


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.counts = nn.Parameter(torch.zeros(SAMPLES))


def model():
    return Counts()


def dataset(split):
    return torch.arange(SAMPLES) if split == "train" else None


def loss(model, samples):
    if not HURRY.exists():
        time.sleep(0.05)
    return -model.counts[samples].mean()


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=float(BATCH))
'''

STEPS_AN_EPOCH = 8


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
        status = self.status()
        cards = [] if status is None else [card for card in status.view.jobs if card.name == job]
        return cards[-1].state if cards else None

    def leads(self) -> bool:
        return self.knows(lambda status: status.view.coordinator == status.view.me.node_id)

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


class Chain:
    """Agents of one cluster on this machine's loopback; they find each other by mDNS."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = folder / "cluster.key"
        ClusterKey.load_or_create(self.key)
        self._hurry = folder / "hurry"
        self.nodes: list[Node] = []

    def prepare(self, name: str) -> Path:
        """Return the jobs folder of the node that will be called ``name``."""
        jobs = self.folder / name / "jobs"
        jobs.mkdir(parents=True, exist_ok=True)
        return jobs

    def write_job(self, node: str, name: str = "counting", *, epochs: int) -> Path:
        """Give a node a job whose model counts the visits of every sample: its own audit.

        A step takes 20 ms or more until `hurry_up`, so that a test has the time it needs.
        """
        folder = self.prepare(node) / name
        folder.mkdir()
        (folder / "counting.py").write_text(SLOW_COUNTING.format(hurry=str(self._hurry)))
        (folder / "job.yaml").write_text(
            "kind: python\nfile: counting.py\nglobal_batch_size: 32\n"
            f"epochs: {epochs}\ndtype: float64\nseed: 3\n"
        )
        return folder

    def hurry_up(self) -> None:
        """Let the counting jobs train as fast as they can."""
        self._hurry.touch()

    def start(
        self,
        name: str,
        *flags: str,
        wait: bool = True,
        within: CpuGroup | None = None,
        facts: Mapping[str, str] = MappingProxyType({}),
    ) -> Node:
        """Start an agent, in a control group if given; unless told otherwise, wait until it answers.

        ``facts``: what a machine other than this one would find out of itself, see `on_other_machine`.
        """
        jobs, state, log = self.prepare(name), self.folder / name / "state", self.folder / name / "log"
        entry = ["-c", on_other_machine(facts)] if facts else ["-m", "daisychain.cli"]
        command = [sys.executable, *entry, "node"]
        given = {
            "--state-folder": state,
            "--jobs-folder": jobs,
            "--key-file": self.key,
            "--name": name,
            "--network": "loopback",
            "--port": 0,
        }
        for flag, value in given.items():
            if flag not in flags:
                command += [flag, str(value)]
        command += flags
        if within is not None:
            command = within.starting(command)
        with log.open("ab") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        node = Node(name, state, jobs, process, time.monotonic(), log)
        self.nodes.append(node)
        if wait:
            self.await_start(node)
        return node

    def await_start(self, node: Node) -> None:
        """Wait until the agent answers."""
        until(
            lambda: node.status() is not None or node.process.poll() is not None,
            START_S,
            f"{node.name} is silent",
        )
        assert node.process.poll() is None, node.log.read_text()

    def leader(self) -> Node:
        """Return the coordinator's node."""
        return next(node for node in self.nodes if node.process.poll() is None and node.leads())

    def close(self) -> None:
        """Stop every agent; whatever does not end is killed and fails the test."""
        late = []
        for node in self.nodes:
            with contextlib.suppress(ProcessLookupError):
                node.signal_all(signal.SIGCONT)
            if node.process.poll() is None:
                node.process.send_signal(signal.SIGTERM)
        for node in self.nodes:
            try:
                node.process.wait(LEAVE_S)
            except subprocess.TimeoutExpired:
                late.append(node.name)
                node.process.kill()
                node.process.wait(LEAVE_S)
        assert not late, f"did not leave within {LEAVE_S} s: {late}"
        for node in self.nodes:
            for pid in node.trainers:
                until(lambda pid=pid: is_gone(pid), 5.0, f"{node.name}'s trainer {pid} is left behind")  # type: ignore[misc]


def on_other_machine(facts: Mapping[str, str]) -> str:
    """Return a program that is `daisychain` on a machine with these facts in place of this one's.

    Known are ``machine_id``, ``version`` (of DaisyChain) and ``torch_version``.
    """
    lines = ["import daisychain, daisychain.host.machine_id, daisychain.host.versions"]
    for fact, value in facts.items():
        match fact:
            case "machine_id":
                lines.append(f"daisychain.host.machine_id.machine_id = lambda: {value!r}")
            case "version":
                lines.append(f"daisychain.__version__ = {value!r}")
            case "torch_version":
                lines.append(f"daisychain.host.versions.torch_version = lambda: {value!r}")
            case _:
                raise ValueError(f"no fact of a machine: {fact}")
    return "\n".join([*lines, "from daisychain.cli.main import main", "main()"])


@contextlib.contextmanager
def chain(folder: Path) -> Iterator[Chain]:
    """A chain that is taken down whatever happens; its logs are shown when the test fails."""
    agents = Chain(folder)
    try:
        yield agents
    except BaseException:
        for node in agents.nodes:
            print(f"--- {node.name}\n{node.log.read_text()[-6000:]}")
            for log in sorted((node.state / "runs").glob("*/train.log")):
                print(f"--- {node.name} {log.name}\n{log.read_text()[-3000:]}")
        raise
    finally:
        agents.close()


def is_gone(pid: int) -> bool:
    """Whether the process has ended (a zombie that nobody waits for has)."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
