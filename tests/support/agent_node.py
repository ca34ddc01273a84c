"""One real agent as a process, and what a test asks of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from support.waiting import until
from support.watched_node import WatchedNode

START_S = 60.0
"""An agent answers within a second on an idle machine; four that start beside others took 20."""

LEAVE_S = 10.0


@dataclass
class Node(WatchedNode):
    """One agent process."""

    process: subprocess.Popen[bytes]
    began_at: float
    log: Path
    signalled: tuple[int, ...] = ()

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
