"""`daisychain jobs`: the queue."""

from __future__ import annotations

from daisychain.cli.client import AgentClient
from daisychain.cli.console import errors_told, out, print_json
from daisychain.cli.options import Json, StateFolder


def jobs(state_folder: StateFolder = None, json: Json = False) -> None:
    """List the runs that the chain knows: place, state, who works on it, what is left, why it waits."""
    with errors_told():
        from daisychain.config import load_config

        config = load_config({"state_folder": state_folder})
        client = AgentClient(config.state_folder)
        if json:
            from daisychain.cli.render import as_records

            print_json(as_records(client.status().view.queue))
            return
        from daisychain.cli.render import show_jobs

        show_jobs(out(), client.status(), config.jobs_folder)
