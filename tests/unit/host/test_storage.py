"""A file is whole or absent, and what is damaged is kept."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from daisychain.errors import StorageError
from daisychain.host.storage import read_bounded, set_aside, write_atomically


def test_a_written_file_is_there_alone_and_private(tmp_path: Path) -> None:
    path = tmp_path / "record"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["record"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "record"
    write_atomically(path, b"one")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        write_atomically(path, b"two")
    assert path.read_bytes() == b"one"
    assert [entry.name for entry in tmp_path.iterdir()] == ["record"]


def test_reading_is_bounded_and_absence_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "record"
    assert read_bounded(path, 3) is None
    path.write_bytes(b"1234")
    assert read_bounded(path, 4) == b"1234"
    with pytest.raises(StorageError, match="over 3 bytes"):
        read_bounded(path, 3)


def test_damaged_files_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "record"
    for text in ("first", "second"):
        path.write_text(text)
        set_aside(path)
    assert not path.exists()
    assert (tmp_path / "record.damaged-1").read_text() == "first"
    assert (tmp_path / "record.damaged-2").read_text() == "second"
