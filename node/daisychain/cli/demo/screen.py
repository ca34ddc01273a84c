"""What a demo shows while it runs and at its end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from daisychain.cli.demo.story import DemoReport
from daisychain.errors import StorageError
from daisychain.runtime.agent_status import AgentStatus


@dataclass(slots=True)
class Moment:
    """One look at the chain: a status for each node by name, None for one that does not answer."""

    statuses: dict[str, AgentStatus | None]
    killed: str | None = None


class Screen:
    """Live progress on a terminal; plain lines, one for each thing that happened, elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._moment: Moment | None = None

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=8, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        """Print a line about something that happened."""
        self._console.print(text, markup=False)

    def keep(self) -> None:
        """Print where the chain stood when it was last shown."""
        if self._moment is not None:
            self._console.print(picture(self._moment))

    def show(self, moment: Moment) -> None:
        """Show where the chain stands now."""
        self._moment = moment
        if self._live is not None:
            self._live.update(picture(moment))


def picture(moment: Moment) -> RenderableType:
    """Return the nodes as a table, with the run's progress under it."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("node", "role", "trainer", "step", "share"):
        table.add_column(heading, min_width=9)
    bar: RenderableType = Text("")
    for name, status in moment.statuses.items():
        if status is None:
            gone = "killed" if name == moment.killed else "starting"
            table.add_row(escape(name), "", f"[red]{gone}[/red]" if gone == "killed" else gone, "", "")
            continue
        view = status.view
        leads = view.coordinator == view.me.node_id
        share = ""
        if view.world is not None and view.progress is not None:
            rank = view.world.rank_of(view.me.node_id)
            same_world = view.progress.generation == view.world.generation
            if rank is not None and same_world and rank < len(view.progress.shares):
                share = str(view.progress.shares[rank])
            bar = _bar(status)
        role = "[cyan]coordinator[/cyan]" if leads else "worker"
        table.add_row(escape(name), role, str(view.trainer.state), str(view.trainer.step), share)
    return Group(table, bar)


def save_picture(console: Console, file: Path, title: str) -> None:
    """Write what the console recorded as an SVG that loads nothing from elsewhere; raises `StorageError`."""
    drawn = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title=title), flags=re.DOTALL)
    try:
        file.write_text(drawn, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{file} cannot be written: {error.strerror}") from None


def _changes(count: int) -> str:
    match count:
        case 0:
            return "the coordinator stayed"
        case 1:
            return "the coordinator changed once"
        case _:
            return f"the coordinator changed {count} times"


def _bar(status: AgentStatus) -> RenderableType:
    progress = status.view.progress
    if progress is None:
        return Text("")
    line = Table.grid(padding=(0, 1))
    line.add_row(
        ProgressBar(total=progress.steps, completed=progress.step, width=32),
        f"{progress.step}/{progress.steps}",
        f"loss {progress.loss:.4f}",
        f"{progress.samples_per_s:,.0f} samples/s",
    )
    return line


def show_report(console: Console, report: DemoReport) -> None:
    """Print the end of a demo: what happened, and what it proves."""
    for line in report_lines(report):
        console.print(line)


def report_lines(report: DemoReport) -> Sequence[str]:
    """Return the report as marked-up lines."""
    shares = ", ".join(f"{escape(name)} {units}" for name, units in report.shares.items())
    sizes = " then ".join(str(size) for size in report.world_sizes)
    lost = f"{report.samples_lost} lost, {report.samples_repeated} repeated"
    clean = report.samples_lost == 0 and report.samples_repeated == 0
    verdict = (
        "[bold green]completed[/bold green]" if report.completed else "[bold red]not completed[/bold red]"
    )
    lines = [
        "",
        f"{verdict}: {escape(report.job)}, {report.committed_steps} steps in {report.train_s:.1f} s",
        f"  worlds      {sizes} nodes; {_changes(report.coordinator_changes)}",
        f"  samples     [{'green' if clean else 'red'}]{lost}[/]",
        f"  shares      {shares} (units a step, by measured speed)",
    ]
    if report.killed is not None:
        took = "never" if report.recovery_s is None else f"{report.recovery_s:.2f} s"
        lines.append(f"  killed      {escape(report.killed)}; next committed step after {took}")
    if report.accuracy is not None:
        lines.append(f"  accuracy    {report.accuracy:.3f} on held-out samples")
    elif report.loss is not None:
        lines.append(f"  loss        {report.loss:.4g} on held-out samples")
    if report.bit_identical is not None:
        same = "[green]the same file, bit for bit[/green]" if report.bit_identical else "[red]differs[/red]"
        lines.append(
            f"  one process {same} (largest relative difference {report.max_relative_difference:.1e})"
        )
    return lines
