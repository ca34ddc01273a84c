"""Real agents as processes on this machine, each with its own state folder and copy of the jobs."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from daisychain.net.identity.cluster_key import ClusterKey
from support.agent_node import LEAVE_S, Node, await_leave, is_gone
from support.cgroups import CpuGroup
from support.waiting import until

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

    def write_job(
        self, node: str, name: str = "counting", *, epochs: int, seed: int = 3, priority: int = 0
    ) -> Path:
        """Give a node a job whose model counts the visits of every sample: its own audit.

        A step takes 20 ms or more until `hurry_up`, so that a test has the time it needs. Another ``seed``
        makes it another job, not the same one under another name.
        """
        folder = self.prepare(node) / name
        folder.mkdir()
        (folder / "counting.py").write_text(SLOW_COUNTING.format(hurry=str(self._hurry)))
        (folder / "job.yaml").write_text(
            "kind: python\nfile: counting.py\nglobal_batch_size: 32\n"
            f"epochs: {epochs}\ndtype: float64\nseed: {seed}\npriority: {priority}\n"
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
            node.await_start()
        return node

    def leader(self) -> Node:
        """Return the coordinator's node."""
        return next(node for node in self.nodes if node.process.poll() is None and node.leads())

    def close(self) -> None:
        """Stop every agent; whatever does not end is killed and fails the test."""
        for node in self.nodes:
            with contextlib.suppress(ProcessLookupError):
                node.signal_all(signal.SIGCONT)
            if node.process.poll() is None:
                node.process.send_signal(signal.SIGTERM)
        late = await_leave((node.name, node.process) for node in self.nodes)
        assert not late, f"did not leave within {LEAVE_S} s: {late}"
        for node in self.nodes:
            for pid in node.trainers:
                until(lambda pid=pid: is_gone(pid), 5.0, f"{node.name}'s trainer {pid} is left behind")  # type: ignore[misc]


OTHER_INSTRUCTIONS = """
import dataclasses, sys
_made = daisychain.config.NodeConfig.supervisor_settings
_command = ("env", "ATEN_CPU_CAPABILITY={value}", sys.executable, "-m", "daisychain.trainer")
daisychain.config.NodeConfig.supervisor_settings = (
    lambda *given: dataclasses.replace(_made(*given), command=_command)
)
"""
"""A trainer's environment is its agent's choice: so it is the command that brings the variable."""


def on_other_machine(facts: Mapping[str, str]) -> str:
    """Return a program that is `daisychain` on a machine with these facts in place of this one's.

    Known are ``machine_id``, ``version`` (of DaisyChain), ``torch_version``, and ``instructions``: what torch
    may use of the processor, as ATEN_CPU_CAPABILITY has it.
    """
    lines = ["import daisychain, daisychain.config, daisychain.host.machine_id, daisychain.host.versions"]
    for fact, value in facts.items():
        match fact:
            case "machine_id":
                lines.append(f"daisychain.host.machine_id.machine_id = lambda: {value!r}")
            case "version":
                lines.append(f"daisychain.__version__ = {value!r}")
            case "torch_version":
                lines.append(f"daisychain.host.versions.torch_version = lambda: {value!r}")
            case "instructions":
                lines.append(OTHER_INSTRUCTIONS.format(value=value))
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
