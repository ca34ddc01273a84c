"""Each kind of error has its exit code, and docs/CLI.md lists them all."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from daisychain import errors
from daisychain.cli.console import errors_told
from daisychain.cli.exits import Exit, exit_code
from daisychain.errors import AgentError, ConfigError, DaisyChainError, JobError

CLASSES = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, DaisyChainError) and kind is not DaisyChainError
]
KINDS = [kind for kind in CLASSES if DaisyChainError in kind.__bases__]
"""What is below one of them is told by its code."""


def test_every_kind_of_error_has_a_code_of_its_own() -> None:
    made = [kind("x", "y") for kind in KINDS]
    codes = [exit_code(error) for error in made]
    assert len(set(codes)) == len(KINDS)
    assert Exit.INTERNAL not in codes
    assert exit_code(DaisyChainError("x")) is Exit.INTERNAL
    assert {exit_code(kind("x", "y")) for kind in CLASSES} == set(codes)


def test_the_document_lists_every_code() -> None:
    text = (Path(__file__).parents[3] / "docs" / "CLI.md").read_text()
    for code in Exit:
        assert f"| {int(code)} |" in text, code


@pytest.mark.parametrize(
    ("error", "code", "lines"),
    [
        (ConfigError("port: 'x'", "Expected a number"), 3, ["error: port: 'x'", "  do: Expected a number"]),
        (JobError("job.yaml: epochs", "is 0"), 7, ["error: job.yaml: epochs: is 0"]),
        (AgentError("[red]no[/red] agent", ""), 8, ["error: [red]no[/red] agent"]),
    ],
)
def test_an_error_is_one_line_with_its_remedy_and_code(
    capsys: pytest.CaptureFixture[str], error: DaisyChainError, code: int, lines: list[str]
) -> None:
    with pytest.raises(typer.Exit) as caught, errors_told():
        raise error
    assert caught.value.exit_code == code
    assert capsys.readouterr().err.splitlines() == lines


def test_ctrl_c_is_130_and_a_bug_is_no_exit(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught, errors_told():
        raise KeyboardInterrupt
    assert caught.value.exit_code == 130
    with pytest.raises(ValueError), errors_told():
        raise ValueError("a bug")
