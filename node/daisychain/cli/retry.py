"""`daisychain retry JOB`."""

from __future__ import annotations

from typing import Annotated

import typer

from daisychain.cli.client import AgentClient
from daisychain.cli.console import errors_told, out, print_json
from daisychain.cli.options import Json, StateFolder


def retry(
    job: Annotated[str, typer.Argument(help="The job's folder name, or a run id")],
    state_folder: StateFolder = None,
    json: Json = False,
) -> None:
    """Queue a job whose run has ended again, as a new run that begins at step 0."""
    with errors_told():
        from daisychain.config import load_config

        card = AgentClient(load_config({"state_folder": state_folder}).state_folder).retry(job)
        if json:
            print_json(card)
        else:
            out().print(f"queued again: {card.name} (run {card.run_id})", markup=False)
