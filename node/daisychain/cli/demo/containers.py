"""The demo on containers: watches them from one beside them, says whom to kill, and reports.

Run as ``python -m daisychain.cli.demo.containers ada bob cleo`` with each node's state and jobs folder in
``/nodes/NAME``. It cannot kill a container itself: it prints ``kill NAME`` on a line of its own, whoever
reads that does it, and it goes on. Its last line is the report of ``daisychain demo --json``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from daisychain.cli.client import AgentClient
from daisychain.cli.console import errors_told, print_json
from daisychain.cli.demo.child import POLL_S
from daisychain.cli.demo.records import read_record
from daisychain.cli.demo.show import KILL_AT, finished
from daisychain.cli.demo.story import DemoReport, Fault, tell
from daisychain.errors import AgentError, DaisyChainError, JobError
from daisychain.runtime.agent_status import AgentStatus

NODES = Path("/nodes")

RUN_S = 300.0
"""Bound on the whole demo: a container that never starts must not keep it for ever."""

KILL_S = 30.0
"""Bound on the kill that was asked for: compose alone takes most of a second to come to it."""


class ContainerDemo:
    """A demo whose nodes run in containers with these names."""

    def __init__(self, names: Sequence[str], folder: Path) -> None:
        self._folder = folder
        self._left = list(names)
        self._clients = {name: AgentClient(folder / name / "state") for name in names}
        self._members: tuple[str, ...] = ()
        self._fault: Fault | None = None

    def run(self) -> DemoReport:
        """Watch until the survivors have finished; raises `JobError` when they do not."""
        nodes_started = len(self._left)
        job = self._watch()
        records = [read_record(self._folder / name / "jobs" / job) for name in self._left]
        return tell(records, self._members, nodes_started, self._fault)

    def _watch(self) -> str:
        """Follow the run to its end, having its coordinator killed on the way; return the job's name."""
        deadline_at = time.monotonic() + RUN_S
        while time.monotonic() < deadline_at:
            statuses = {name: self._status(name) for name in self._left}
            for status in statuses.values():
                if status is not None and status.view.world is not None and not self._members:
                    self._members = tuple(member.name for member in status.view.world.members)
            if self._fault is None:
                self._kill_when_due(statuses)
            elif all(finished(status) for status in statuses.values()):
                return next(s.view.jobs[0].name for s in statuses.values() if s is not None)
            time.sleep(POLL_S)
        raise JobError("demo", f"it did not end within {RUN_S:g} s")

    def _kill_when_due(self, statuses: dict[str, AgentStatus | None]) -> None:
        for name, status in statuses.items():
            if finished(status):
                raise JobError("demo", "the run ended before its coordinator could be killed")
            if status is None or status.view.progress is None:
                continue
            view, progress = status.view, status.view.progress
            if view.coordinator == view.me.node_id and progress.step >= KILL_AT * progress.steps:
                self._left.remove(name)
                at = self._killed_at(name)
                self._fault = Fault(name, "coordinator", at, str(progress.generation), progress.step)
                return

    def _killed_at(self, name: str) -> float:
        """Have a container killed; return the Unix time at which its agent was gone.

        Not that of the asking: until the engine acts upon it the node trains on.
        """
        with self._clients[name].witness() as witness:
            print(f"kill {name}", flush=True)  # noqa: T201 - for a program, not for a person
            if not witness.gone_within(KILL_S):
                raise AgentError(f"{name} was not killed within {KILL_S:g} s")
            return time.time()

    def _status(self, name: str) -> AgentStatus | None:
        """Return what a node knows; None when it does not answer yet."""
        try:
            return self._clients[name].status()
        except AgentError:
            return None


def main() -> None:
    """Run the demo with the names on the command line."""
    with errors_told():
        report = ContainerDemo(sys.argv[1:], NODES).run()
        print_json(report)
        if not report.proven:
            raise DaisyChainError("the demo did not show what it should")


if __name__ == "__main__":
    main()
