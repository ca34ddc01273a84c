"""Where a demo keeps its folders is the user's to name; a bad one is said in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from daisychain.cli.exits import Exit
from daisychain.cli.main import app


@pytest.mark.parametrize(
    ("where", "code", "said"),
    [
        ("there", Exit.CONFIG, "it is there already"),
        ("file/below", Exit.STORAGE, "cannot be made: Not a directory"),
        ("n" * 300, Exit.STORAGE, "cannot be made: File name too long"),
        ("/proc/below", Exit.STORAGE, "cannot be made: "),
    ],
)
def test_a_folder_that_cannot_be_made_is_an_error_of_one_line(
    tmp_path: Path, where: str, code: Exit, said: str
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "file").touch()
    ran = CliRunner().invoke(app, ["demo", "--keep", str(tmp_path / where)])
    assert (ran.exit_code, said in ran.stderr) == (code, True), ran.stderr
