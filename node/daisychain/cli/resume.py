"""`daisychain resume JOB`."""

from __future__ import annotations

from typing import Annotated

import typer

from daisychain.cli.client import AgentClient
from daisychain.cli.console import errors_told, out, print_json
from daisychain.cli.options import Json, StateFolder


def resume(
    job: Annotated[str, typer.Argument(help="The job's folder name, or a run id")],
    state_folder: StateFolder = None,
    json: Json = False,
) -> None:
    """Have a paused job go on when its turn comes."""
    with errors_told():
        from daisychain.config import load_config

        card = AgentClient(load_config({"state_folder": state_folder}).state_folder).resume(job)
        if json:
            print_json(card)
        else:
            out().print(f"resumed: {card.name} (run {card.run_id})", markup=False)
