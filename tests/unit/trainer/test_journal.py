"""The journal: lines by tick, written soon, cut and extended as state moves between nodes."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daisychain.errors import ProtocolError, StorageError
from daisychain.trainer.record.journal import (
    FLUSH_BYTES,
    FLUSH_EVERY_S,
    LINE_MAX_BYTES,
    Evaluation,
    EvaluationLine,
    Journal,
    Line,
    StepLine,
    WorldInfo,
)
from daisychain.trainer.record.trouble import Trouble

WORLD = WorldInfo(generation="1.1", size=2, coordinator="a", shares=(3, 5))


def step(number: int, loss: float = 0.5) -> StepLine:
    return StepLine(step=number, epoch=0, loss=loss, samples=8, step_s=0.01, world=WORLD, at=float(number))


def evaluation(number: int) -> EvaluationLine:
    return EvaluationLine(step=number, evaluation=Evaluation(loss=0.25, metrics={"accuracy": 0.5}))


LINES: list[Line] = [step(1), step(2), evaluation(2), step(3), step(4), evaluation(4)]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def journal(tmp_path: Path, clock: Clock) -> Iterator[Journal]:
    journal = Journal(tmp_path / "metrics.jsonl", clock)
    yield journal
    journal.close()


def fill(journal: Journal, lines: list[Line]) -> None:
    for line in lines:
        journal.append(line)


def test_lines_come_back_in_order(journal: Journal) -> None:
    fill(journal, LINES)
    assert list(journal.lines()) == LINES
    assert (journal.tick, journal.last_step) == (6, 4)


def test_a_line_waits_in_memory_no_longer_than_the_bound(
    journal: Journal, clock: Clock, tmp_path: Path
) -> None:
    file = tmp_path / "metrics.jsonl"
    journal.append(step(1))
    assert file.stat().st_size == 0
    clock.now = FLUSH_EVERY_S
    journal.append(step(2))
    assert file.read_bytes().count(b"\n") == 2


def test_no_more_than_the_bound_waits_in_memory(journal: Journal, tmp_path: Path) -> None:
    number = 0
    while (tmp_path / "metrics.jsonl").stat().st_size == 0:
        number += 1
        journal.append(step(number))
    assert (tmp_path / "metrics.jsonl").stat().st_size < FLUSH_BYTES + 1000


def test_closing_writes_what_is_pending(journal: Journal, tmp_path: Path) -> None:
    fill(journal, LINES)
    journal.close()
    assert (tmp_path / "metrics.jsonl").read_bytes().count(b"\n") == 6


@pytest.mark.parametrize("tick", range(8))
def test_cut_and_extended_by_anothers_lines_it_is_whole_again(tmp_path: Path, tick: int) -> None:
    full, behind = Journal(tmp_path / "full"), Journal(tmp_path / "behind")
    try:
        fill(full, LINES)
        fill(behind, LINES)
        behind.truncate_after(tick)
        assert behind.tick == min(tick, 6)
        assert list(behind.lines()) == LINES[:tick]
        behind.extend(full.lines_after(behind.tick))
        assert (tmp_path / "behind").read_bytes() == (tmp_path / "full").read_bytes()
        assert behind.last_step == 4
        behind.append(step(5))
        assert list(behind.lines()) == [*LINES, step(5)]
    finally:
        full.close()
        behind.close()


def test_opened_again_it_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    first = Journal(path)
    fill(first, LINES)
    first.close()
    second = Journal(path)
    assert (second.tick, second.last_step) == (6, 4)
    second.append(step(5))
    assert list(second.lines()) == [*LINES, step(5)]
    second.close()


@pytest.mark.parametrize("torn", [b'{"step":5,"ep', b"\0\0\0\0", b'{"step":"x"}\n', b"\n"])
def test_what_a_crash_left_after_the_last_whole_line_is_cut_off(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    journal = Journal(path)
    fill(journal, LINES)
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    again = Journal(path)
    assert again.tick == 6
    again.close()
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "lines",
    [
        [step(4)],  # a step left out
        [step(2)],  # a step repeated
        [step(3), step(3)],
        [evaluation(3)],  # of a step that is not there
        [step(3), evaluation(2)],
    ],
)
def test_a_peers_lines_that_do_not_follow_are_refused_whole(
    tmp_path: Path, journal: Journal, lines: list[Line]
) -> None:
    other = Journal(tmp_path / "other")
    fill(other, lines)
    data = other.lines_after(0)
    other.close()
    fill(journal, LINES[:2])
    with pytest.raises(ProtocolError, match="jump"):
        journal.extend(data)
    assert list(journal.lines()) == LINES[:2]


@given(st.binary(max_size=200))
def test_garbage_from_a_peer_changes_nothing(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    journal = Journal(tmp_path_factory.mktemp("journal") / "metrics.jsonl")
    try:
        fill(journal, LINES)
        if data:
            with pytest.raises(ProtocolError):
                journal.extend(data)
        assert list(journal.lines()) == LINES
    finally:
        journal.close()


def test_an_oversized_line_is_refused(journal: Journal) -> None:
    with pytest.raises(ProtocolError, match="limit"):
        journal.extend(b"{" + b" " * LINE_MAX_BYTES + b"}\n")


def test_a_number_that_is_not_finite_is_written_as_null(journal: Journal) -> None:
    journal.append(step(1, loss=math.nan))
    (line,) = journal.lines()
    assert isinstance(line, StepLine)
    assert line.loss is None


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="absent"):
        Journal(tmp_path / "absent" / "metrics.jsonl")


def test_a_full_disk_is_told_and_nothing_is_lost_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, short = Journal(tmp_path / "whole"), Journal(tmp_path / "short")
    fill(whole, LINES)
    fill(short, LINES[:2])
    short.flush()
    fill(short, LINES[2:])
    write = os.pwrite
    written: list[int] = []

    def full(fd: int, data: bytes, at: int) -> int:
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(write(fd, data[:7], at))
        return written[0]

    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", full)
        with pytest.raises(StorageError, match=r"No space left on device.*Make room"):
            short.flush()
    assert written == [7]
    short.close()
    whole.close()
    assert (tmp_path / "short").read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A disk that takes nothing until ``undo``."""

    def full(fd: int, data: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    yield monkeypatch
    monkeypatch.undo()


def test_while_the_disk_takes_nothing_the_record_is_whole_all_the_same(
    tmp_path: Path, clock: Clock, full_disk: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    path = tmp_path / "metrics.jsonl"
    journal = Journal(path, clock, Trouble(told.append))
    for line in LINES:
        clock.now += FLUSH_EVERY_S
        journal.append(line)
    assert path.stat().st_size == 0
    assert (list(journal.lines()), journal.tick, journal.last_step) == (LINES, 6, 4)
    journal.truncate_after(3)
    assert list(journal.lines()) == LINES[:3]
    other = Journal(tmp_path / "other")
    other.extend(journal.lines_after(0))
    assert other.tick == 3
    other.close()
    assert len(told) == 1, "once a spell, not once a try"
    assert "Make room on its disk" in told[0]
    full_disk.undo()
    clock.now += FLUSH_EVERY_S
    journal.append(LINES[3])
    assert path.read_bytes().count(b"\n") == 4
    assert told[1:] == [""]
    journal.close()


def test_a_disk_that_fills_up_in_the_middle_keeps_what_it_has(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines in the file and lines that wait are one record: cut, passed on and read as one."""
    journal = Journal(tmp_path / "metrics.jsonl", clock)
    fill(journal, LINES[:3])
    journal.flush()

    def full(fd: int, data: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    fill(journal, LINES[3:])
    assert list(journal.lines()) == LINES
    assert journal.lines_after(1).count(b"\n") == 5
    journal.truncate_after(4)
    assert (list(journal.lines()), journal.last_step) == (LINES[:4], 3)
    journal.truncate_after(1)
    assert (list(journal.lines()), journal.last_step) == (LINES[:1], 1)
    monkeypatch.undo()
    journal.append(step(2))
    journal.close()
    assert (tmp_path / "metrics.jsonl").read_bytes().count(b"\n") == 2


def test_no_more_waits_than_the_bound(tmp_path: Path, clock: Clock, full_disk: pytest.MonkeyPatch) -> None:
    full_disk.setattr("daisychain.trainer.record.journal.PENDING_MAX_BYTES", 2000)
    journal = Journal(tmp_path / "metrics.jsonl", clock)
    number = 0
    with pytest.raises(StorageError, match=r"No space left.*bytes of the record wait in memory.*Make room"):
        while number < 100:
            number += 1
            clock.now += FLUSH_EVERY_S
            journal.append(step(number))
    assert 5 < number < 50
    journal.close()


def test_a_bad_disk_is_tried_no_more_often_than_lines_are_written(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    def full(fd: int, data: bytes, at: int) -> int:
        tries.append(len(data))
        raise OSError(errno.ENOSPC, "No space left on device")

    journal = Journal(tmp_path / "metrics.jsonl", clock)
    monkeypatch.setattr(os, "pwrite", full)
    for number in range(1, 2001):  # far more than FLUSH_BYTES
        clock.now += FLUSH_EVERY_S / 100
        journal.append(step(number))
    assert 19 <= len(tries) <= 22
    assert max(tries) < FLUSH_BYTES + 1000
    monkeypatch.undo()
    journal.close()
    assert (tmp_path / "metrics.jsonl").read_bytes().count(b"\n") == 2000
