"""The `daisychain` command: every subcommand is one file; a new one is one line here."""

from __future__ import annotations

from typing import Annotated

import typer

from daisychain import __version__
from daisychain.cli import (
    cancel,
    doctor,
    install_plan,
    jobs,
    key,
    logs,
    node,
    pause,
    predict,
    resume,
    retry,
    run,
    status,
    submit,
)
from daisychain.cli.demo.command import demo

app = typer.Typer(
    name="daisychain",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Chains spare machines to train small PyTorch models together.",
    epilog="Exit codes are listed in docs/CLI.md.",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"daisychain {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version")
    ] = False,
) -> None:
    """Take the options of every command."""


app.command()(node.node)
app.command()(demo)
app.command()(run.run)
app.command()(submit.submit)
app.command()(jobs.jobs)
app.command()(status.status)
app.command()(logs.logs)
app.command()(cancel.cancel)
app.command()(retry.retry)
app.command()(pause.pause)
app.command()(resume.resume)
app.command()(predict.predict)
app.command()(doctor.doctor)
app.command(name="install-plan", hidden=True)(install_plan.install_plan)
app.add_typer(key.app, name="key")


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
