"""Where commands print: colours off when not a terminal, errors as one line with a remedy."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from daisychain.cli.exits import Exit, exit_code
from daisychain.errors import DaisyChainError

if TYPE_CHECKING:
    from rich.console import Console


PIPED_WIDTH = 200
"""Columns when the output is no terminal: a table's rows stay whole for whoever greps them."""


def out() -> Console:
    """Return the console for results: plain text when not a terminal (or NO_COLOR is set)."""
    from rich.console import Console

    terminal = sys.stdout.isatty()
    width = None if terminal else PIPED_WIDTH
    return Console(file=sys.stdout, highlight=False, soft_wrap=not terminal, width=width)


def err() -> Console:
    """Return the console for errors and progress."""
    from rich.console import Console

    return Console(file=sys.stderr, highlight=False, soft_wrap=not sys.stderr.isatty())


def print_json(value: Any) -> None:
    """Print ``value`` as one JSON document on one line."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


@contextlib.contextmanager
def errors_told() -> Iterator[None]:
    """Turn an error that a person can act upon into one line, its remedy and an exit code."""
    try:
        yield
    except DaisyChainError as error:
        show_error(error)
        raise typer.Exit(exit_code(error)) from None
    except KeyboardInterrupt:
        err().print("interrupted")
        raise typer.Exit(Exit.INTERRUPTED) from None
    except BrokenPipeError:  # `daisychain logs JOB | head`
        sys.stderr.close()
        raise typer.Exit(Exit.OK) from None


def show_error(error: DaisyChainError) -> None:
    """Print what happened, and on a second line what to do."""
    from rich.markup import escape

    console = err()
    where = getattr(error, "where", "")
    message = error.message if not where or error.message.startswith(where) else f"{where}: {error.message}"
    console.print(f"[red]error:[/red] {escape(message)}")
    if error.remedy:
        console.print(f"  [bold]do:[/bold] {escape(error.remedy)}")
