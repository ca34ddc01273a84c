"""A chain of real agents on this machine: each a process with its own state and jobs folder."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from daisychain.cli.client import AgentClient
from daisychain.cli.demo.child import POLL_S, Child, kill_pid
from daisychain.cli.interrupts import held_off
from daisychain.errors import AgentError, DaisyChainError
from daisychain.net.identity.cluster_key import ClusterKey
from daisychain.runtime.agent_status import AgentStatus

START_S = 30.0
"""An agent answers within a second on an idle machine; a slow disk takes longer."""

STOP_S = 10.0
"""From SIGTERM to SIGKILL; an agent leaves within 5 s."""

NAMES = ("ada", "bob", "cleo", "dan", "eve", "fay", "gus", "hal")
NODES_MAX = len(NAMES)


@dataclass(frozen=True, slots=True)
class Reach:
    """How the nodes find each other: by mDNS, or from addresses when the machine has no multicast."""

    mdns: bool
    why: str


class LocalNode:
    """One agent, as a process of ours."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.state_folder = folder / "state"
        self.jobs_folder = folder / "jobs"
        self._log = folder / "agent.out"
        self._client = AgentClient(self.state_folder)
        self._child: Child | None = None

    def start(self, options: tuple[str, ...]) -> None:
        """Start the agent; it dies with this process."""
        command = [sys.executable, "-m", "daisychain.cli", "node", "--name", self.name]
        command += ["--state-folder", str(self.state_folder), "--jobs-folder", str(self.jobs_folder)]
        with held_off():  # until it is kept: see Child
            self._child = Child([*command, *options], self._log, _environment(os.environ))

    @property
    def running(self) -> bool:
        """Whether the agent's process is there."""
        return self._child is not None and self._child.running

    def status(self) -> AgentStatus | None:
        """Return what the agent knows; None when it does not answer (not yet, or no more)."""
        if not self.running:
            return None
        try:
            return self._client.status()
        except DaisyChainError:
            return None

    def await_status(self) -> AgentStatus:
        """Return the agent's first answer; raises `AgentError` with its last words when it gives none."""
        deadline_at = time.monotonic() + START_S
        while time.monotonic() < deadline_at:
            status = self.status()
            if status is not None:
                return status
            if not self.running:
                break
            time.sleep(POLL_S)
        words = self._log.read_text(errors="replace")[-400:].strip()
        raise AgentError(f"the agent of {self.name} did not start: {words or 'it said nothing'}")

    def kill(self, trainer_pid: int | None) -> float:
        """End agent and trainer with SIGKILL, as a power cut would; return the Unix time of the fault."""
        at = time.time()
        if self._child is not None:
            kill_pid(trainer_pid)
            self._end(self._child)
        return at

    def ask_to_leave(self) -> None:
        """Send SIGTERM: the node leaves in good order."""
        if self._child is not None:
            self._child.send(signal.SIGTERM)

    def wait(self) -> None:
        """Wait for the agent's end; SIGKILL past the bound. Raises `AgentError` when that ends it not."""
        if self._child is not None and not self._child.ends(STOP_S):
            self._end(self._child)

    def _end(self, child: Child) -> None:
        child.send(signal.SIGKILL)
        if not child.ends(STOP_S):
            raise AgentError(
                f"the agent of {self.name} (process {child.pid}) has not ended {STOP_S:g} s after SIGKILL",
                "A disk or a network share that does not answer holds it: look with ps",
            )


class LocalChain:
    """The nodes of a demo, in a folder of their own; a context manager that leaves no process behind."""

    def __init__(self, folder: Path, size: int, reach: Reach) -> None:
        self.nodes = [LocalNode(name, folder / name) for name in NAMES[:size]]
        self._reach = reach

    def __enter__(self) -> LocalChain:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.ask_to_leave()
        for node in self.nodes:
            node.wait()

    def drop(self, job_folder: Path) -> None:
        """Copy a job into the first node's jobs folder, without any earlier result; the others fetch it."""
        copy_job(job_folder, self.nodes[0].jobs_folder)

    def start(self) -> None:
        """Give every node the one key, start them, and wait until each answers."""
        key = ClusterKey.generate()
        common: tuple[str, ...] = ("--network", "loopback", "--port", "0", "--no-tailnet")
        common += ("--min-nodes", str(len(self.nodes)))
        seeds: tuple[str, ...] = ()
        for node in self.nodes:
            node.state_folder.mkdir(parents=True, mode=0o700)
            key.save(node.state_folder / "cluster.key")
            if self._reach.mdns:
                node.start((*common, "--mdns"))
            else:
                node.start((*common, "--no-mdns", *seeds))
                seeds = ("--seeds", str(self.nodes[0].await_status().view.me.address))
        for node in self.nodes:
            node.await_status()


def copy_job(job_folder: Path, jobs_folder: Path) -> Path:
    """Copy a job into a jobs folder, without any earlier result; return the copy."""
    target = jobs_folder / job_folder.name
    shutil.copytree(job_folder, target, ignore=shutil.ignore_patterns("result", "__pycache__", ".*"))
    return target


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of an agent: whatever configures the user's own node is left out."""
    return {name: value for name, value in environ.items() if not name.startswith("DAISYCHAIN_")}
