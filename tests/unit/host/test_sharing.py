"""Agents that use one jobs folder find each other by their marks in it."""

from __future__ import annotations

import os
from pathlib import Path

from daisychain.core.ids import NodeId
from daisychain.host.sharing import FRESH_S, MARK_EVERY_S, MARKS_MAX, SharedFolder

ADA, BOB = NodeId("a" * 32), NodeId("b" * 32)


def test_two_agents_on_one_folder_know_of_each_other_until_one_leaves(tmp_path: Path) -> None:
    ada, bob = SharedFolder(tmp_path, ADA), SharedFolder(tmp_path, BOB)
    assert ada.look(0.0) == frozenset()
    assert bob.look(0.0) == {ADA}
    assert ada.look(1.0) == {BOB}
    bob.leave()
    assert ada.look(2.0) == frozenset()


def test_a_mark_that_is_no_longer_written_counts_no_more(tmp_path: Path) -> None:
    """That of a dead agent, or one that came along when the folder was copied."""
    ada, bob = SharedFolder(tmp_path, ADA), SharedFolder(tmp_path, BOB)
    bob.look(0.0)
    (mark,) = tmp_path.iterdir()
    os.utime(mark, (mark.stat().st_mtime - FRESH_S - 1,) * 2)
    assert ada.look(0.0) == frozenset()
    bob.look(MARK_EVERY_S)
    assert ada.look(1.0) == {BOB}


def test_whoever_fills_the_folder_with_marks_makes_no_endless_list(tmp_path: Path) -> None:
    for number in range(3 * MARKS_MAX):
        (tmp_path / f".daisychain-node-{number:032x}").touch()
    assert len(SharedFolder(tmp_path, ADA).look(0.0)) <= MARKS_MAX


def test_a_folder_that_cannot_be_written_is_shared_with_nobody(tmp_path: Path) -> None:
    assert SharedFolder(tmp_path / "missing", ADA).look(0.0) == frozenset()


def test_a_mark_that_an_earlier_life_left_half_written_is_removed_and_no_other_s(tmp_path: Path) -> None:
    ours, theirs = (tmp_path / f"..daisychain-node-{node}.0123abcd.new" for node in (ADA, BOB))
    ours.touch()
    theirs.touch()  # Bob may be writing it now
    SharedFolder(tmp_path, ADA).look(0.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [f".daisychain-node-{ADA}", theirs.name]
    )
