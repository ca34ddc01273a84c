"""The processes of a competitor on one node: started inside its place, struck, ended with all they made."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from bench.peers.step_log import StepLog
from bench.peers.system import Seat, System
from rig.node import Place
from support.namespaces import inside
from support.waiting import until

END_S, READY_S = 10.0, 20.0
ROOT = Path(__file__).resolve().parents[2]

WITH_HOSTS = 'mount --bind "$0" /etc/hosts && exec "$@"'
"""What a shell runs in a mount namespace of its own: both competitors look each other up by hostname."""


class PeerNode:
    """One node of a competitor's chain.

    Attributes:
        log: its committed steps.
        started_at: Unix seconds of the last start of its training.
    """

    def __init__(self, system: System, seat: Seat, place: Place) -> None:
        self.seat = seat
        self.log = StepLog(seat.folder / "steps")
        self.started_at = 0.0
        self._system = system
        self._place = place
        self._service: subprocess.Popen[bytes] | None = None
        self._training: subprocess.Popen[bytes] | None = None
        seat.folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        """Start what does not run: the service, where this node has it, and the training."""
        service = self._system.service(self.seat)
        if service and (self._service is None or self._service.poll() is not None):
            self._service = self._open(service.command, "service.log")
            until(lambda: self._answers(service.port), READY_S, f"{self._system.name}'s service is not there")
        self.started_at = time.time()
        self._training = self._open(self._system.node(self.seat), "training.log")

    def kill(self) -> None:
        """SIGKILL to every process of the node."""
        self._signal(self._everything(), signal.SIGKILL)

    def kill_trainer(self) -> None:
        """SIGKILL to the process that trains: the last child, or the only one there is."""
        self._signal(self._tree(self._training)[-1:], signal.SIGKILL)

    def freeze(self) -> None:
        """SIGSTOP to every process."""
        self._signal(self._everything(), signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT to every process."""
        self._signal(self._everything(), signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM to what a person would end: the training program, or the agent over it."""
        if self._training is not None:
            self._training.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """End what still runs, and wait until it is gone."""
        processes = self._trainings() + self._tree(self._service)
        self._signal(processes, signal.SIGKILL)
        psutil.wait_procs(processes, timeout=END_S)
        for process in (self._training, self._service):
            if process is not None:
                process.wait(END_S)

    def tail(self) -> str:
        """Return the end of the training's own log, for a failure."""
        path = self.seat.folder / "training.log"
        return path.read_text(errors="replace")[-2000:] if path.exists() else "(no log)"

    def _answers(self, port: int) -> bool:
        """Whether something takes connections on the node's ``port``."""

        def connect() -> bool:
            with contextlib.suppress(OSError), socket.create_connection((self.seat.address, port), 1.0):
                return True
            return False

        return inside(self._place.namespace, connect)

    def _everything(self) -> list[psutil.Process]:
        return self._tree(self._training) + self._tree(self._service)

    def _trainings(self) -> list[psutil.Process]:
        """Return every process that trains here, those included whose agent died before them."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if str(self.seat.folder / "steps") in process.cmdline():
                    found.append(process)
        return found

    @staticmethod
    def _tree(process: subprocess.Popen[bytes] | None) -> list[psutil.Process]:
        if process is None:
            return []
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(process.pid)
            return [root, *root.children(recursive=True)]
        return []

    @staticmethod
    def _signal(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def _open(self, command: list[str], log: str) -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "GLOO_SOCKET_IFNAME": "eth0",
            "OMP_NUM_THREADS": "1",
            "RES_OPTIONS": "timeout:1 attempts:1",
            "RUST_LOG": "warn",
            **self._system.environment,
        }
        with (self.seat.folder / log).open("ab") as output:
            return subprocess.Popen(
                self._place.starting(
                    ["unshare", "--mount", "/bin/sh", "-c", WITH_HOSTS, str(self.seat.hosts), *command]
                ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                cwd=self.seat.folder,
            )
