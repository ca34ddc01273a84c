"""`daisychain run JOB`: train on this machine alone; the same loop, no cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daisychain.cli.console import err, errors_told, out, print_json
from daisychain.cli.interrupts import any_end_is_ctrl_c
from daisychain.cli.options import CacheMaxBytes, JobsFolder, Json, MemoryMaxBytes, StateFolder

if TYPE_CHECKING:
    from daisychain.core.reports import Report


def run(
    job: Annotated[str, typer.Argument(help="A job in the jobs folder, or its folder")],
    state_folder: StateFolder = None,
    jobs_folder: JobsFolder = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads [default: all that may be used]")] = None,
    cache_max_bytes: CacheMaxBytes = None,
    memory_max_bytes: MemoryMaxBytes = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="Begin at step 0, though an interrupted run could go on")
    ] = False,
    json: Json = False,
) -> None:
    """Train a job on this machine alone; the result is in JOB/result."""
    with errors_told(), any_end_is_ctrl_c():
        import asyncio

        from daisychain.app import run_alone
        from daisychain.config import load_config

        config = load_config(
            {
                "state_folder": state_folder,
                "jobs_folder": jobs_folder,
                "threads": threads,
                "cache_max_bytes": cache_max_bytes,
                "memory_max_bytes": memory_max_bytes,
            }
        )
        named = config.jobs_folder / job
        folder = (named if (named / "job.yaml").is_file() else Path(job)).resolve()
        with _Bar(folder.name) as bar:
            finished = asyncio.run(run_alone(config, folder, bar.tell, anew))
        summary = folder / "result" / "summary.json"
        if json:
            print_json({"run_id": finished.run_id, "step": finished.step, "summary": str(summary)})
        else:
            out().print(
                f"trained {folder.name}: {finished.step} steps. The result: {summary.parent}", markup=False
            )


class _Bar:
    """The progress bar, on stderr; nothing but the end is shown when that is no terminal."""

    def __init__(self, name: str) -> None:
        from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}  {task.fields[said]}", markup=False),
            TimeRemainingColumn(),
            console=err(),
            disable=not err().is_terminal,
        )
        self._task: TaskID = self._progress.add_task(name, total=1, said="loading")

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def tell(self, report: Report) -> None:
        """Show what the trainer reports."""
        from daisychain.core.reports import Progress, TrainerReady

        match report:
            case TrainerReady():
                if report.step:
                    err().print(f"goes on from step {report.step} of {report.steps} (--anew begins again)")
                self._progress.update(self._task, total=report.steps, completed=report.step, said="ready")
            case Progress():
                said = f"loss {report.loss:.4g}  {report.samples_per_s:.0f} samples/s"
                self._progress.update(self._task, total=report.steps, completed=report.step, said=said)
            case _:
                pass
