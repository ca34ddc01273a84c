"""Status, jobs and checks as text; every colour is also a word."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.markup import escape
from rich.table import Table

from daisychain.core.jobs import JobState
from daisychain.core.node import NodeInfo, TrainerState, TrainerStatus
from daisychain.core.queue_view import QueuedJob
from daisychain.core.view import ChainView
from daisychain.runtime.agent_status import AgentStatus, FetchView

if TYPE_CHECKING:
    from rich.console import Console

    from daisychain.runtime.doctor_rules import Check

_STATE_STYLES = {
    JobState.QUEUED: "cyan",
    JobState.RUNNING: "bold green",
    JobState.PAUSED: "yellow",
    JobState.WITHDRAWN: "dim",
    JobState.FINISHED: "green",
    JobState.FAILED: "red",
    JobState.CANCELLED: "yellow",
}
_HEALTH_STYLES = {"alive": "green", "suspect": "yellow", "dead": "red", "left": "dim"}
_CHECK_STYLES = {"ok": "green", "warning": "yellow", "problem": "red"}


def show_status(console: Console, status: AgentStatus) -> None:
    """Print the chain as one node sees it."""
    view = status.view
    console.print(f"cluster {view.cluster_id}   over {status.interface}: {escape(status.interface_reason)}")
    console.print(f"coordinator: {escape(_coordinator(view))}   term {view.term.number}")
    console.print(_nodes(view))
    for line in _standing_by(view):
        console.print(f"[yellow]{escape(line)}[/yellow]")
    for source in status.discovery:
        console.print(f"found by {source.source}: {source.health} ({escape(source.text)})")
    for stranger in view.strangers:
        console.print(f"[yellow]not in the chain:[/yellow] {stranger.address} ({escape(stranger.reason)})")
    if view.world is not None:
        names = ", ".join(member.name for member in view.world.members)
        reason = escape(view.world.reason)
        console.print(f"world {view.world.generation}: {escape(names)} ({reason})")
    if view.caution:
        console.print(f"[yellow]{escape(view.caution)}[/yellow]")
    if view.progress is not None:
        progress = view.progress
        console.print(
            f"step {progress.step} of {progress.steps}, loss {progress.loss:.4g}, "
            f"{progress.samples_per_s:.0f} samples/s, shares {'/'.join(map(str, progress.shares))}"
        )
    if view.waiting:
        console.print(f"waiting for {escape(view.waiting)}")
    for line in fetching(status.fetches):
        console.print(escape(line))
    for problem in status.problems:
        console.print(f"[red]problem:[/red] {escape(problem)}")
    if view.jobs:
        console.print(jobs_table(view.queue))


def show_jobs(console: Console, status: AgentStatus, folder: Path) -> None:
    """Print the queue, what is being fetched, and who does not train along with what runs."""
    view = status.view
    if not view.jobs:
        console.print(f"no jobs. Drop a folder with a job.yaml into {folder}", markup=False)
        return
    console.print(jobs_table(view.queue))
    for name, labels in _shared_names(view).items():
        console.print(
            f"[yellow]{len(labels)} jobs are called {escape(name)}: {escape(', '.join(labels))}.[/yellow] "
            "Their files differ, so each is trained in turn; rename a folder to tell them apart"
        )
    for line in fetching(status.fetches):
        console.print(escape(line))
    if any(card.state is JobState.RUNNING for card in view.jobs):
        for line in _standing_by(view):
            console.print(f"[yellow]{escape(line)}[/yellow]")


def _shared_names(view: ChainView) -> dict[str, list[str]]:
    """Return the names that several jobs have, with what each of these is called."""
    names: dict[str, list[str]] = {}
    for job in view.queue:
        if job.label != job.card.name:
            names.setdefault(job.card.name, []).append(job.label)
    return names


def fetching(fetches: Sequence[FetchView]) -> list[str]:
    """Return a line for each bundle on its way: ``fetching jobs/digits: 34 of 200 MB from ada, bob``."""
    lines = []
    for fetch in fetches:
        what = f"jobs/{fetch.name}" + ("/result" if fetch.part == "result" else "")
        done = f"{_megabytes(fetch.done_bytes)} of {_megabytes(fetch.size_bytes)} MB"
        known = done if fetch.size_bytes else "asking what it holds"
        lines.append(f"fetching {what}: {known} from {', '.join(fetch.sources) or 'nobody just now'}")
    return lines


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.0f}" if size_bytes >= 9.5e6 else f"{size_bytes / 1e6:.2g}"


def jobs_table(jobs: Sequence[QueuedJob]) -> Table:
    """Return the runs as a table, in the order given."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("", "job", "state", "steps", "left", "on", "run", "why"):
        table.add_column(heading, overflow="fold")
    for job in jobs:
        card = job.card
        style = _STATE_STYLES[card.state]
        table.add_row(
            str(job.place) if job.place else "",
            escape(job.label),
            f"[{style}]{card.state}[/{style}]",
            f"{card.step}/{card.steps}" if card.steps else "",
            "" if card.state.ended else duration(job.eta_s),
            escape(", ".join(job.workers)),
            card.run_id,
            escape(card.reason if card.state.ended else job.waits),
        )
    return table


def as_records(jobs: Sequence[QueuedJob]) -> list[dict[str, Any]]:
    """Return the runs for programs: everything of the card and of its place, in one object each."""
    records: list[dict[str, Any]] = []
    for job in jobs:
        record = msgspec.to_builtins(job)
        records.append({**record.pop("card"), **record})
    return records


def duration(seconds: float | None) -> str:
    """Return a time to come for people, such as ``2 h 5 min``; ``-`` when it is not known."""
    if seconds is None:
        return "-"
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{math.ceil(seconds)} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def show_check(console: Console, check: Check) -> None:
    """Print one line of the doctor's report, and its remedy."""
    style = _CHECK_STYLES[check.state.value]
    console.print(f"[{style}]{check.state.value:8}[/{style}] {check.name:10} {escape(check.text)}")
    if check.remedy:
        console.print(f"{'':19} [bold]do:[/bold] {escape(check.remedy)}")


def _coordinator(view: ChainView) -> str:
    if view.coordinator is None:
        return "none yet"
    everybody = [view.me, *(peer.info for peer in view.peers)]
    return next((info.name for info in everybody if info.node_id == view.coordinator), view.coordinator)


def _nodes(view: ChainView) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("node", "id", "address", "health", "computes on", "trainer"):
        table.add_column(heading, overflow="fold")
    _add(table, view.me, "this node", view.trainer)
    for peer in view.peers:
        style = _HEALTH_STYLES.get(peer.health, "")
        health = f"[{style}]{peer.health}[/{style}]" if style else peer.health
        _add(table, peer.info, health, peer.trainer)
    return table


def _add(table: Table, info: NodeInfo, health: str, trainer: TrainerStatus) -> None:
    device = info.device if info.device != "cpu" else f"{info.cores} cores"
    said = str(trainer.state) + (f", step {trainer.step}" if trainer.step else "")
    table.add_row(
        escape(info.name), info.node_id[:8], str(info.address), health, escape(device), escape(said)
    )


def _standing_by(view: ChainView) -> list[str]:
    """Return a line for each node that does not train though a job runs, or that failed at one: why."""
    everybody = [
        (view.me.name, view.standby, view.trainer),
        *((peer.info.name, peer.standby, peer.trainer) for peer in view.peers),
    ]
    lines = []
    for name, reason, trainer in everybody:
        if reason:
            lines.append(f"{name} stands by: {reason.removeprefix(f'{name}: ')}")
        elif trainer.state is TrainerState.FAILED:
            lines.append(f"{name} failed at run {trainer.run_id}: {trainer.reason}")
        if trainer.trouble:
            lines.append(f"{name} trains, but {trainer.trouble}")
    return lines
