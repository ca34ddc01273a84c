"""`daisychain submit JOB`: queue a job, or queue it again."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated

import typer

from daisychain.cli.client import AgentClient
from daisychain.cli.console import errors_told, out, print_json
from daisychain.cli.options import JobsFolder, Json, StateFolder
from daisychain.errors import AgentError, JobError, StorageError
from daisychain.runtime.agent_status import Submitted

SEEN_S = 20.0
"""Longest wait until the agent has seen a folder that was just copied in."""


def submit(
    job: Annotated[str, typer.Argument(help="A job in the jobs folder, or a folder to copy there")],
    state_folder: StateFolder = None,
    jobs_folder: JobsFolder = None,
    json: Json = False,
) -> None:
    """Queue a job; a job that ended is queued again as a new run."""
    with errors_told():
        from daisychain.config import load_config

        config = load_config({"state_folder": state_folder, "jobs_folder": jobs_folder})
        client = AgentClient(config.state_folder)
        client.jobs()  # no copy is made when no agent would train it
        name = _bring_in(job, config.jobs_folder)
        answer = _submit(client, name)
        if json:
            print_json(answer)
        elif answer.already:
            out().print(f"already {answer.card.state}: {name} (run {answer.card.run_id})", markup=False)
        else:
            out().print(f"queued: {name} (run {answer.card.run_id})", markup=False)


def _bring_in(job: str, jobs_folder: Path) -> str:
    """Return the job's name in the jobs folder, where it is copied as a whole when it lies elsewhere."""
    if Path(job).name == job and (jobs_folder / job / "job.yaml").is_file():
        return job
    source = Path(job).resolve()
    if source.parent == jobs_folder.resolve():
        return source.name
    if not (source / "job.yaml").is_file():
        raise JobError(
            job, f"no folder with a job.yaml, neither here nor in {jobs_folder}", "Name a job's folder"
        )
    target = jobs_folder / source.name
    if target.exists():
        raise JobError(job, f"{target} is there already", "Rename one of the two")
    scratch = jobs_folder / f".{source.name}.new"  # hidden: not a job until it is whole
    try:
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(source, scratch, ignore=shutil.ignore_patterns("result", "__pycache__", ".*"))
        scratch.rename(target)
    except (OSError, shutil.Error) as error:
        shutil.rmtree(scratch, ignore_errors=True)
        raise StorageError(f"{source} cannot be copied to {jobs_folder}: {error}") from None
    return target.name


def _submit(client: AgentClient, name: str) -> Submitted:
    deadline_at = time.monotonic() + SEEN_S
    while True:
        try:
            return client.submit(name)
        except AgentError as error:
            if "still being copied" not in error.message or time.monotonic() > deadline_at:
                raise
            time.sleep(0.2)
