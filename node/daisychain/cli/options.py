"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

StateFolder = Annotated[
    Path | None,
    typer.Option("--state-folder", help="The node's own folder [default: ~/.daisychain]", show_default=False),
]
JobsFolder = Annotated[
    Path | None,
    typer.Option("--jobs-folder", help="Where jobs are dropped [default: ./jobs]", show_default=False),
]
CacheMaxBytes = Annotated[
    int | None,
    typer.Option(
        "--cache-max-bytes",
        help="Most bytes of converted tables on disk [default: half of the free space]",
        show_default=False,
    ),
]
MemoryMaxBytes = Annotated[
    int | None,
    typer.Option(
        "--memory-max-bytes",
        help="Most bytes of memory for a trainer [default: the node's, less an eighth]",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document")]
