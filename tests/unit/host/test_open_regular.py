"""Where job code may write, the agent opens nothing but plain files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from daisychain.host.storage import open_regular

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def test_a_plain_file_is_made_appended_to_and_read(tmp_path: Path) -> None:
    for text in (b"one\n", b"two\n"):
        with open_regular(tmp_path / "log", APPEND) as file:
            file.write(text)
    with open_regular(tmp_path / "log", os.O_RDONLY) as file:
        assert file.read() == b"one\ntwo\n"


@pytest.mark.parametrize("flags", [APPEND, os.O_RDONLY])
@pytest.mark.parametrize("what", ["link", "dangling link", "pipe", "folder"])
def test_nothing_else_is_opened_nor_waited_for(tmp_path: Path, what: str, flags: int) -> None:
    key, path = tmp_path / "key", tmp_path / "log"
    key.write_text("secret")
    match what:
        case "link":
            path.symlink_to(key)
        case "dangling link":
            path.symlink_to(tmp_path / "new")
        case "pipe":
            os.mkfifo(path)
        case _:
            path.mkdir()
    with pytest.raises(OSError):
        open_regular(path, flags)
    assert key.read_text() == "secret"
    assert not (tmp_path / "new").exists()
