"""The demo itself: start, watch, kill, watch on, and tell what happened."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from daisychain.cli.demo.chain import LocalChain, LocalNode, Reach, copy_job
from daisychain.cli.demo.child import POLL_S
from daisychain.cli.demo.records import Record, max_relative_difference, read_record, same_file
from daisychain.cli.demo.screen import Moment, Screen
from daisychain.cli.demo.story import DemoReport, Fault, tell
from daisychain.cli.demo.verify import make_reproducible, train_alone
from daisychain.core.jobs import JobState
from daisychain.errors import JobError, NetworkError
from daisychain.net.discovery.mdns_check import check_mdns
from daisychain.net.interface_choice import Network, choose_interface
from daisychain.net.interfaces import list_interfaces
from daisychain.runtime.agent_status import AgentStatus

RUN_S = 900.0
"""Bound on the whole run; a demo job takes seconds."""

KILL_AT = 0.4
"""The part of the run's steps after which a node is killed."""


class Demo:
    """One demo in ``folder``. ``kill``: ``coordinator``, ``worker`` or None."""

    def __init__(self, folder: Path, job: Path, nodes: int, kill: str | None, console: Console) -> None:
        if not (job / "job.yaml").is_file():
            raise JobError(
                str(job),
                "there is no job.yaml in it",
                "Name a job's folder with --job, or go to where DaisyChain was cloned to",
            )
        self._folder = folder
        self._job = job.resolve()
        self._nodes = nodes
        self._kill = kill
        self._screen = Screen(console)
        self._members: tuple[str, ...] = ()
        self._fault: Fault | None = None

    def run(self, verify: bool) -> DemoReport:
        """Run it; raises `JobError` when the job fails or the run ends before the fault could be made."""
        job = copy_job(self._job, self._folder / "job")
        if verify:
            make_reproducible(job)
        reach = asyncio.run(_reach())
        self._screen.say(f"{self._nodes} nodes on this machine, found {reach.why}")
        with LocalChain(self._folder, self._nodes, reach) as chain:
            chain.drop(job)
            chain.start()
            with self._screen:
                survivors = self._watch(chain)
            records = [read_record(node.jobs_folder / job.name) for node in survivors]
        report = tell(records, self._members, self._nodes, self._fault)
        return self._compare(report, records[0], job) if verify else report

    def _compare(self, report: DemoReport, record: Record, job: Path) -> DemoReport:
        self._screen.say("the same job in one process, to compare ...")
        alone = train_alone(job, self._folder / "alone")
        return replace(
            report,
            bit_identical=report.survivors_equal and same_file([record.model_file, alone.model_file]),
            max_relative_difference=max_relative_difference(alone.model_file, record.model_file),
        )

    def _watch(self, chain: LocalChain) -> list[LocalNode]:
        """Follow the run to its end, killing on the way; return the nodes that are left."""
        deadline_at = time.monotonic() + RUN_S
        while time.monotonic() < deadline_at:
            statuses = {node.name: node.status() for node in chain.nodes}
            self._screen.show(Moment(statuses, None if self._fault is None else self._fault.name))
            left = [node for node in chain.nodes if self._fault is None or node.name != self._fault.name]
            self._remember_members(statuses)
            if self._kill is not None and self._fault is None:
                self._kill_when_due(chain, statuses)
            elif all(finished(statuses[node.name]) for node in left):
                return left
            time.sleep(POLL_S)
        raise JobError(self._job.name, f"the demo did not end within {RUN_S:g} s")

    def _remember_members(self, statuses: dict[str, AgentStatus | None]) -> None:
        for status in statuses.values():
            if status is not None and status.view.world is not None and not self._members:
                self._members = tuple(member.name for member in status.view.world.members)

    def _kill_when_due(self, chain: LocalChain, statuses: dict[str, AgentStatus | None]) -> None:
        for node in chain.nodes:
            status = statuses[node.name]
            if status is None:
                continue
            if finished(status):
                raise JobError(
                    self._job.name,
                    "the run ended before a node could be killed",
                    "Give it more epochs or steps, or use --kill none",
                )
            view = status.view
            leads = view.coordinator == view.me.node_id
            due = view.progress is not None and view.progress.step >= KILL_AT * view.progress.steps
            if not due or view.progress is None or leads != (self._kill == "coordinator"):
                continue
            self._screen.keep()
            at = node.kill(status.trainer_pid)
            role = "coordinator" if leads else "worker"
            self._fault = Fault(node.name, role, at, str(view.progress.generation), view.progress.step)
            self._screen.say(f"killed {node.name}, the {role}, at step {view.progress.step}")
            return


def finished(status: AgentStatus | None) -> bool:
    """Return whether the job ended well on this node; raises `JobError` when it failed."""
    if status is None or not status.view.jobs:
        return False
    card = status.view.jobs[0]
    if card.state in (JobState.FAILED, JobState.CANCELLED):
        raise JobError(card.name, f"it {card.state}: {card.reason}")
    return card.state is JobState.FINISHED


async def _reach() -> Reach:
    """Find out by trying whether mDNS works on the loopback interface."""
    interface = choose_interface(list_interfaces(), None, Network.LOOPBACK)
    try:
        await check_mdns(interface, listen_s=0.0)
    except NetworkError as error:
        return Reach(False, f"from given addresses: no mDNS here ({error.message})")
    return Reach(True, "by mDNS")
