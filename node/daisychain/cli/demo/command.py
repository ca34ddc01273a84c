"""`daisychain demo`: starts a chain here, kills a node in mid-run, and shows that nothing was lost."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from daisychain.cli.console import err, errors_told, out, print_json
from daisychain.cli.exits import Exit
from daisychain.cli.interrupts import any_end_is_ctrl_c
from daisychain.cli.options import Json

PICTURE_WIDTH = 84
"""Columns of the picture that --svg writes."""


class Kill(StrEnum):
    """Whom the demo kills in mid-run."""

    COORDINATOR = "coordinator"
    WORKER = "worker"
    NONE = "none"


def demo(
    nodes: Annotated[int, typer.Option(help="How many nodes", min=1, max=8)] = 3,
    kill: Annotated[Kill, typer.Option(help="Whom to kill in mid-run")] = Kill.COORDINATOR,
    job: Annotated[Path, typer.Option(help="The job's folder")] = Path("jobs/digits"),
    verify: Annotated[
        bool, typer.Option("--verify", help="Train reproducibly, here and in one process, and compare")
    ] = False,
    keep: Annotated[Path | None, typer.Option(help="Keep the nodes' folders here (must not exist)")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write a picture of the demo's output")] = None,
    json: Json = False,
) -> None:
    """Start a chain of real nodes on this machine, kill one in mid-run, and report."""
    with errors_told(), any_end_is_ctrl_c():
        from daisychain.cli.demo.screen import save_picture, show_report
        from daisychain.cli.demo.show import Demo
        from daisychain.errors import ConfigError

        if kill is not Kill.NONE and nodes < 2:
            raise ConfigError(
                f"--kill {kill} with {nodes} node", "Nobody would be left: use --nodes 2 or more"
            )
        console = err() if json else out()
        if svg is not None:
            console.record, console.width = True, PICTURE_WIDTH
        with _folder(keep) as folder:
            show = Demo(folder, job, nodes, None if kill is Kill.NONE else kill.value, console)
            report = show.run(verify)
        show_report(console, report)
        if svg is not None:
            wishes = f"--nodes {nodes} --kill {kill.value}{' --verify' if verify else ''}"
            save_picture(console, svg, f"daisychain demo {wishes}")
        if json:
            print_json(report)
        if not report.proven:
            raise typer.Exit(Exit.DEMO)


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Yield the folder of the demo's nodes; removed afterwards unless it is kept."""
    from daisychain.errors import ConfigError, StorageError

    if keep is None:
        with tempfile.TemporaryDirectory(prefix="daisychain-demo-") as name:
            yield Path(name)
        return
    try:
        keep.mkdir(parents=True)
    except FileExistsError:
        raise ConfigError(f"--keep {keep}: it is there already", "Name a folder that is not") from None
    except OSError as error:
        raise StorageError(f"--keep {keep} cannot be made: {error.strerror}", "Name another folder") from None
    yield keep.resolve()
