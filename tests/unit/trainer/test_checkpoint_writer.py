"""When checkpoints are written, and that the training never waits for one, nor ends for want of room."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from daisychain.errors import StorageError
from daisychain.trainer.record.trouble import Trouble
from daisychain.trainer.state.checkpoint_file import Head, load, save
from daisychain.trainer.state.checkpoint_writer import CheckpointSettings, CheckpointWriter
from daisychain.trainer.state.training_state import TrainingState
from daisychain.trainer.state.trees import Packed
from unit.trainer.test_checkpoints import Node
from unit.trainer.test_state import Make, state_of

WRITING = "daisychain.trainer.state.checkpoints.save"
SETTINGS = CheckpointSettings(least_s=30.0, end_s=2.0)


class Bench:
    """A node whose writer goes by a clock of the test's."""

    def __init__(self, folder: Path, make_python: Make) -> None:
        self.now = 0.0
        self.told: list[str] = []
        self.node = Node(folder, state_of(make_python))
        trouble = Trouble(self.told.append)
        self.node.journal._trouble = trouble
        self.writer = CheckpointWriter(
            self.node.checkpoints, self.node.state, self.node.journal, trouble, SETTINGS, lambda: self.now
        )

    def begin(self) -> None:
        self.writer.begin(self.node.head())

    def whole(self) -> None:
        """Have a checkpoint begin now and be over."""
        self.begin()
        self.writer.end(None)

    def ticks(self) -> list[int]:
        return sorted(int(path.stem) for path in self.node.folder.glob("*.state"))


@pytest.fixture
def bench(tmp_path: Path, make_python: Make) -> Iterator[Bench]:
    bench = Bench(tmp_path, make_python)
    yield bench
    bench.writer.end(None)
    bench.node.journal.close()


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A disk on which nothing comes to an end before the event is set."""
    free = threading.Event()

    def slow(path: Path, head: Head, packed: Packed) -> None:
        assert free.wait(30)
        save(path, head, packed)

    monkeypatch.setattr(WRITING, slow)
    yield free
    free.set()


def test_the_next_is_due_by_the_formula_beside_the_settings() -> None:
    every = CheckpointSettings(least_s=30.0, copy_factor=200.0, write_factor=20.0, bytes_per_s=1e6)
    assert every.interval_s(0.005, 0.1, 12_000_000) == 30.0
    assert every.interval_s(0.2, 0.1, 12_000_000) == 40.0, "the training waits 1/200 of its time at most"
    assert every.interval_s(0.005, 3.0, 12_000_000) == 60.0, "the disk works 1/20 of its time at most"
    assert every.interval_s(0.005, 0.1, 400_000_000) == 400.0, "and takes 1 MB/s on average"
    assert every.interval_s(0.005, 3600.0, 12_000_000) == 1800.0, "the machine slept while it was written"


def test_the_first_is_due_so_long_after_the_first_step_and_then_again(bench: Bench) -> None:
    bench.now = 500.0  # it waited for a world
    assert not bench.writer.due()
    bench.now = 529.9
    assert not bench.writer.due()
    bench.now = 530.0
    assert bench.writer.due()
    bench.node.train()
    bench.whole()
    assert bench.ticks() == [1]
    bench.now = 559.9
    assert not bench.writer.due()
    bench.now = 560.0
    assert bench.writer.due()


def test_only_one_is_written_at_a_time_and_it_holds_the_state_at_its_beginning(
    bench: Bench, slow_disk: threading.Event
) -> None:
    bench.node.train()
    then = bench.node.state.pack()
    bench.begin()
    bench.node.train(2)  # the training goes on
    bench.now = 1000.0
    assert not bench.writer.due()
    slow_disk.set()
    bench.writer.end(None)
    head, packed = load(bench.node.folder / "000000000001.state", 1 << 20)
    assert (head.tick, packed.header) == (1, then.header)
    assert torch.equal(packed.payload, then.payload)
    bench.now += SETTINGS.most_s
    assert bench.writer.due()


def test_the_record_is_durable_before_the_checkpoint_is_in_place(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    sync, write = os.fsync, save

    def synced(fd: int) -> None:
        sync(fd)
        happened.append(Path(f"/proc/self/fd/{fd}").readlink().name)

    def saved(path: Path, head: Head, packed: Packed) -> None:
        lines = (bench.node.folder.parent / "metrics.jsonl").read_bytes().count(b"\n")
        happened.append(f"record of {lines}")
        write(path, head, packed)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(WRITING, saved)
    bench.node.train(3)
    bench.whole()
    assert happened[:2] == ["metrics.jsonl", "record of 3"]
    assert happened[2:] == [".000000000003.state.new", "checkpoints"]


def test_an_orderly_end_writes_what_is_not_on_the_disk_yet_once(bench: Bench) -> None:
    bench.node.train(2)
    bench.writer.end(bench.node.head())
    assert bench.ticks() == [2]
    written = (bench.node.folder / "000000000002.state").stat().st_mtime_ns
    bench.writer.end(bench.node.head())
    assert (bench.node.folder / "000000000002.state").stat().st_mtime_ns == written


def test_a_run_that_has_not_gone_on_since_it_was_restored_writes_nothing(
    bench: Bench, tmp_path: Path, make_python: Make
) -> None:
    bench.node.train(2)
    bench.writer.end(bench.node.head())
    again = Bench(tmp_path, make_python)
    again.node.restore()
    state, journal = again.node.state, again.node.journal
    writer = CheckpointWriter(again.node.checkpoints, state, journal, Trouble(), SETTINGS)
    for path in again.node.folder.iterdir():
        path.unlink()
    writer.end(again.node.head())
    assert again.ticks() == []
    journal.close()


def test_an_orderly_end_leaves_out_what_is_not_sound_and_what_would_take_too_long(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.node.train()

    def three_seconds(path: Path, head: Head, packed: Packed) -> None:
        bench.now += 3.0
        save(path, head, packed)

    with monkeypatch.context() as disk:
        disk.setattr(WRITING, three_seconds)
        bench.whole()
    bench.node.train()
    bench.writer.end(bench.node.head())
    assert bench.ticks() == [1], "the last one took 3 s, and 2 s are allowed"
    bench.whole()
    bench.node.train()
    bench.node.state.sound = False
    bench.writer.end(bench.node.head())
    assert bench.ticks() == [1, 2]


def test_a_full_disk_is_told_once_a_spell_and_training_goes_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, head: Head, packed: Packed) -> None:
        raise StorageError(f"{path} cannot be written: No space left on device", "Make room on its disk")

    bench.node.train()
    with monkeypatch.context() as disk:
        disk.setattr(WRITING, full)
        for _ in range(3):
            bench.now += 30.0
            bench.whole()
            bench.node.train()
        assert bench.ticks() == []
    (told,) = bench.told
    assert "checkpoints are not written: " in told
    assert told.endswith("No space left on device. Make room on its disk")
    assert not bench.writer.due()
    bench.now += 30.0
    assert bench.writer.due()
    bench.whole()
    assert bench.told[1:] == [""]
    assert bench.ticks() == [4]


def test_a_record_that_cannot_be_written_keeps_checkpoints_from_going_ahead_of_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, data: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    bench.node.train(2)
    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", full)
        bench.whole()
    assert bench.ticks() == []
    assert "metrics lines are not written" in bench.told[0]
    assert "checkpoints are not written" in bench.told[1]
    bench.whole()
    assert bench.ticks() == [2]
    assert bench.told[-1] == ""


def test_a_state_that_cannot_be_written_at_all_is_told_and_stops_nothing(bench: Bench) -> None:
    bench.node.train()
    bench.node.state.engine.job.optimizer.param_groups[0]["mine"] = object()
    bench.whole()
    assert "a object in the training state cannot be passed to another node" in bench.told[0]
    assert bench.ticks() == []


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_memory_that_does_not_suffice_for_a_copy_is_told_and_stops_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def pack(state: object) -> Packed:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(TrainingState, "pack", pack)
        bench.whole()
    assert bench.ticks() == []
    assert len(bench.told) == 1 and "memory does not suffice" in bench.told[0]
    bench.whole()
    assert bench.told[1:] == [""] and len(bench.ticks()) == 1


def test_checkpoints_of_a_state_that_had_drifted_are_forgotten_and_the_next_is_due_at_once(
    bench: Bench,
) -> None:
    bench.node.train()
    bench.whole()
    assert not bench.writer.due()
    bench.writer.distrust()
    assert bench.ticks() == []
    assert bench.writer.due()


def test_one_that_is_being_written_from_a_drifted_state_is_forgotten_and_nobody_waits_for_it(
    bench: Bench, slow_disk: threading.Event
) -> None:
    bench.node.train()
    bench.begin()
    bench.writer.distrust()  # a disk that answers nothing must not hold up the training
    assert not slow_disk.is_set()
    assert not bench.writer.due()
    slow_disk.set()
    bench.writer.end(None)
    assert bench.ticks() == []
    assert bench.writer.due()


def test_a_disk_that_lacks_more_than_room_is_told_as_such(bench: Bench) -> None:
    bench.node.train()
    bench.node.folder.parent.mkdir(exist_ok=True)
    bench.node.folder.write_text("a file where a folder should be")
    bench.whole()
    assert "See that its folder is there" in bench.told[0]
    assert "Make room" not in bench.told[0]
