"""A chain of real agents on this machine: each a process with its own state and jobs folder."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from daisychain.cli.client import AgentClient
from daisychain.errors import AgentError, DaisyChainError
from daisychain.net.identity.cluster_key import ClusterKey
from daisychain.runtime.agent_status import AgentStatus

START_S = 30.0
"""An agent answers within a second on an idle machine; a slow disk takes longer."""

STOP_S = 10.0
"""From SIGTERM to SIGKILL; an agent leaves within 5 s."""

POLL_S = 0.05
NAMES = ("ada", "bob", "cleo", "dan", "eve", "fay", "gus", "hal")
NODES_MAX = len(NAMES)

_PR_SET_PDEATHSIG = 1


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
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, options: tuple[str, ...]) -> None:
        """Start the agent; it dies with this process."""
        command = [sys.executable, "-m", "daisychain.cli", "node", "--name", self.name]
        command += ["--state-folder", str(self.state_folder), "--jobs-folder", str(self.jobs_folder)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(os.environ),
                start_new_session=True,  # a Ctrl-C is ours to pass on
                # the demo runs one thread, so this is safe here
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509
            )

    @property
    def running(self) -> bool:
        """Whether the agent's process is there."""
        return self._process is not None and self._process.poll() is None

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
        if self._process is not None:
            for pid in (trainer_pid, self._process.pid):
                if pid is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            self._process.wait(STOP_S)
        return at

    def ask_to_leave(self) -> None:
        """Send SIGTERM: the node leaves in good order."""
        if self.running and self._process is not None:
            self._process.terminate()

    def wait(self) -> None:
        """Wait for the agent's end; SIGKILL past the bound."""
        if self._process is None:
            return
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_S)


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


def _die_with_parent() -> None:
    """Ask Linux to end this process when the demo is killed outright (it cannot clear up then)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
