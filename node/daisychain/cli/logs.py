"""`daisychain logs JOB`: what the job printed on this node."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from daisychain.cli.client import AgentClient
from daisychain.cli.console import errors_told
from daisychain.cli.options import StateFolder

FOLLOW_S = 0.5


def logs(
    job: Annotated[str, typer.Argument(help="The job's folder name, or a run id")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends")] = False,
    state_folder: StateFolder = None,
) -> None:
    """Print the log of the job's newest run on this node."""
    with errors_told():
        from daisychain.config import load_config

        client = AgentClient(load_config({"state_folder": state_folder}).state_folder)
        offset = 0
        while True:
            chunk = client.logs(job, offset)
            sys.stdout.write(chunk.text)
            sys.stdout.flush()
            moved, offset = chunk.offset != offset, chunk.offset
            if chunk.text and moved:
                continue
            if not follow or chunk.ended:
                return
            time.sleep(FOLLOW_S)
