"""`daisychain pause JOB`."""

from __future__ import annotations

from typing import Annotated

import typer

from daisychain.cli.client import AgentClient
from daisychain.cli.console import errors_told, out, print_json
from daisychain.cli.options import Json, StateFolder


def pause(
    job: Annotated[str, typer.Argument(help="The job's folder name, or a run id")],
    state_folder: StateFolder = None,
    json: Json = False,
) -> None:
    """Pause a queued or running job on every node; it keeps its place and its progress."""
    with errors_told():
        from daisychain.config import load_config

        card = AgentClient(load_config({"state_folder": state_folder}).state_folder).pause(job)
        if json:
            print_json(card)
        else:
            out().print(f"paused: {card.name} (run {card.run_id})", markup=False)
