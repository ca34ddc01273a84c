"""A chain on the rig: a real agent on each place; they find each other by mDNS."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from daisychain.net.identity.cluster_key import ClusterKey
from rig.node import Place, RigNode, spawn
from rig.stops import Board, Point, Stop
from support.agent_node import LEAVE_S, await_leave, is_gone
from support.cgroups import CpuGroup
from support.waiting import until

GONE_S = 5.0
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Loopback:
    """A place on this machine's own loopback: no cuts, no shapes, and no root needed."""

    name: str
    namespace: str = ""
    address: str = "127.0.0.1"

    def starting(self, command: Sequence[str]) -> list[str]:
        """Return the command as it is."""
        return list(command)


class RigChain:
    """Machines with one key. The folder's path must be short: it holds Unix sockets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = folder / "cluster.key"
        ClusterKey.load_or_create(self.key)
        self.board = Board(folder / "board")
        self.nodes: list[RigNode] = []
        self._disks: list[Path] = []
        self._closed = False

    def prepare(self, name: str) -> Path:
        """Return the jobs folder of the node that will be called ``name``."""
        jobs = self.folder / name / "jobs"
        jobs.mkdir(parents=True, exist_ok=True)
        return jobs

    def small_disk(self, name: str, size_bytes: int) -> Path:
        """Put the node's state folder on a disk of its own, of this size; call before it starts."""
        state = self.folder / name / "state"
        state.mkdir(parents=True, mode=0o700)
        options = f"size={size_bytes},mode=0700"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "rig", str(state)], check=True, timeout=20)
        self._disks.append(state)
        return state

    def start(
        self,
        place: Place,
        *flags: str,
        clock_offset_s: float = 0.0,
        checkpoint_every_s: float = 0.0,
        within: CpuGroup | None = None,
    ) -> RigNode:
        """Start an agent at ``place``, in a control group if given; `RigNode.await_start` waits for it.

        ``checkpoint_every_s``: of its trainers, 0 = as the product has it.
        """
        name = place.name
        jobs, state = self.prepare(name), self.folder / name / "state"
        entry = [sys.executable, "-m", "rig.agent_entry", "--board", str(self.board.path), "--node", name]
        entry += [f"--clock-offset={clock_offset_s}", f"--checkpoint-every={checkpoint_every_s}", "--"]
        entry += ["node", "--name", name, "--no-tailnet", "--key-file", str(self.key)]
        entry += ["--state-folder", str(state), "--jobs-folder", str(jobs)]
        entry += ["--port", "0", "--network", "lan" if place.namespace else "loopback"]
        command = place.starting([*entry, *flags])
        if within is not None:
            command = within.starting(command)
        log, environment = self.folder / name / "log", environment_of_rig()
        node = RigNode(
            name=name,
            state=state,
            jobs=jobs,
            process=spawn(command, log, environment),
            began_at=time.monotonic(),
            log=log,
            place=place,
            command=command,
            environment=environment,
            board=self.board,
        )
        self.nodes.append(node)
        return node

    def stop_at(self, node: RigNode | str, point: Point, step: int = 0) -> Stop:
        """Wish that the node's next trainer that passes ``point`` at ``step`` or later halts there."""
        return self.board.stop_at(node if isinstance(node, str) else node.name, point, step)

    def leader(self) -> RigNode:
        """Return the coordinator's node."""
        return next(node for node in self.nodes if node.running and node.leads())

    def workers(self) -> list[RigNode]:
        """Return the other running nodes, those with the least node id first."""
        found = [node for node in self.nodes if node.running and not node.leads()]
        return sorted(found, key=lambda node: "" if (it := node.status()) is None else it.view.me.node_id)

    def story(self) -> str:
        """Return what every node and every stop said, for people."""
        return "\n".join([*(node.story() for node in self.nodes), f"--- stops: {self.board.story()}"])

    def left_behind(self) -> list[str]:
        """Return what of the chain still lives: processes that began as one of ours, their command lines."""
        return [" ".join(process.cmdline()) for process in self._processes()]

    def close(self) -> None:
        """Ask every agent to leave; what does not end is killed, and is an `AssertionError`. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self.board.close()
        for node in self.nodes:
            node.thaw()
            if node.running:
                node.terminate()
        late = await_leave((node.name, node.process) for node in self.nodes)
        left: list[str] = []
        try:
            assert not late, f"did not leave within {LEAVE_S} s: {late}"
            for node in self.nodes:
                pids = tuple(node.trainers)
                until(lambda pids=pids: all(map(is_gone, pids)), GONE_S, f"{node.name}'s trainer is left")  # type: ignore[misc]
            with contextlib.suppress(AssertionError):
                until(lambda: not self.left_behind(), GONE_S, "")
            left = self.left_behind()
        finally:
            for process in self._processes():
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
            for disk in self._disks:
                subprocess.run(["umount", "-l", str(disk)], check=False, timeout=20)
        assert not left, f"left behind: {left}"

    def _processes(self) -> list[psutil.Process]:
        """Return every process whose command line names our board: agents, trainers, and what they forked."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                ours = str(self.board.path) in process.cmdline() and process.pid != os.getpid()
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found


def environment_of_rig() -> dict[str, str]:
    """Return the environment of a node: this one's, without what configures a user's own node."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DAISYCHAIN_")}
    return {**kept, "PYTHONPATH": f"{ROOT / 'node'}:{ROOT / 'tests'}"}


@contextlib.contextmanager
def rig_chain() -> Iterator[RigChain]:
    """A chain in a folder of its own that is taken down whatever happens; its story is told when it fails."""
    with tempfile.TemporaryDirectory(prefix="rig-") as folder:
        chain = RigChain(Path(folder))
        try:
            yield chain
        except BaseException:
            print(chain.story())
            raise
        finally:
            chain.close()
