"""What a node remembers over restarts, and what it does when it cannot."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from daisychain.core.ids import NodeId, Term
from daisychain.errors import StorageError
from daisychain.host.state_folder import NodeRecord, StateFolder, socket_of
from daisychain.host.storage import write_atomically

ME = NodeId("a" * 32)
OTHER = NodeId("b" * 32)


class KilledError(Exception):
    """Stands for the end of the process: nothing of it runs any more."""


def opened(folder: StateFolder, node_id: NodeId = ME) -> NodeRecord:
    record = NodeRecord.open(folder, node_id)
    assert isinstance(record, NodeRecord), record
    return record


def test_term_and_incarnation_survive_a_restart(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "state")
    record = NodeRecord.begin(folder, ME)
    assert (record.term, record.incarnation) == (Term(0, ME), 1)
    record.save_term(Term(7, OTHER))
    record.save_incarnation(3)
    again = opened(StateFolder(tmp_path / "state"))
    assert (again.term, again.incarnation) == (Term(7, OTHER), 3)


def test_a_term_never_falls(tmp_path: Path) -> None:
    record = NodeRecord.begin(StateFolder(tmp_path), ME)
    record.save_term(Term(7, ME))
    with pytest.raises(StorageError, match="a term never falls"):
        record.save_term(Term(6, OTHER))
    record.save_incarnation(5)
    record.save_incarnation(4)
    assert opened(StateFolder(tmp_path)).incarnation == 5


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b'{"node_id": 3}', b"x" * 5000])
def test_a_damaged_record_is_named_and_kept(tmp_path: Path, damage: bytes) -> None:
    folder = StateFolder(tmp_path)
    NodeRecord.begin(folder, ME)
    (tmp_path / "record.json").write_bytes(damage)
    why = NodeRecord.open(folder, ME)
    assert isinstance(why, str)
    assert "record.json.damaged-1" in why
    assert (tmp_path / "record.json.damaged-1").read_bytes() == damage


def test_a_record_of_another_node_or_none_is_not_used(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    assert "missing" in str(NodeRecord.open(folder, ME))
    NodeRecord.begin(folder, OTHER)
    assert "another node id" in str(NodeRecord.open(folder, ME))


def test_what_a_life_that_was_killed_as_it_wrote_left_behind_is_removed_by_the_next(tmp_path: Path) -> None:
    def killed(*_: object, **_wishes: object) -> None:
        raise KilledError

    folder = StateFolder(tmp_path)
    files = (folder.record, folder.ledger, folder.fetched, folder.results)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        patch.setattr(Path, "unlink", killed)  # a dead process clears nothing up
        for file in files:
            with pytest.raises(KilledError):
                write_atomically(file, b"half")
    assert len(list(tmp_path.glob("*"))) == len(files)
    others = (tmp_path / ".cluster.key.01234567.new", tmp_path / ".record.json.mine.new")
    for other in others:  # another writer may be at work on these
        other.touch()
    folder.lock()
    try:
        assert set(tmp_path.glob(".*")) == set(others)
    finally:
        folder.unlock()


def test_a_second_agent_is_refused_and_told_who_has_the_folder(tmp_path: Path) -> None:
    first, second = StateFolder(tmp_path), StateFolder(tmp_path)
    first.lock()
    with pytest.raises(StorageError, match=f"process {os.getpid()}") as caught:
        second.lock()
    assert "--state-folder" in caught.value.remedy
    first.unlock()
    second.lock()
    second.unlock()


def test_a_full_disk_does_not_keep_the_folder_from_being_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    first, second = StateFolder(tmp_path), StateFolder(tmp_path)
    monkeypatch.setattr(os, "pwrite", full)
    first.lock()
    with pytest.raises(StorageError, match="another agent"):
        second.lock()
    first.unlock()


def test_the_folder_is_private(tmp_path: Path) -> None:
    assert StateFolder(tmp_path / "state").path.stat().st_mode & 0o777 == 0o700


def test_a_path_too_long_for_a_socket_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="too long for a Unix socket"):
        socket_of(tmp_path / ("x" * 100))
