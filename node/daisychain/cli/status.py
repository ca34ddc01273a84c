"""`daisychain status`: what this node knows of the chain."""

from __future__ import annotations

from daisychain.cli.client import AgentClient
from daisychain.cli.console import errors_told, out, print_json
from daisychain.cli.options import Json, StateFolder


def status(state_folder: StateFolder = None, json: Json = False) -> None:
    """Show the chain as this node sees it: nodes, coordinator, the world, the job."""
    with errors_told():
        from daisychain.config import load_config

        config = load_config({"state_folder": state_folder})
        answer = AgentClient(config.state_folder).status()
        if json:
            print_json(answer)
            return
        from daisychain.cli.render import show_status

        show_status(out(), answer)
