"""Checkpoints: what was written comes back to the bit, and whatever is not intact and ours is passed over."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from daisychain.core.ids import RunId
from daisychain.errors import StorageError
from daisychain.trainer.record.journal import Evaluation, EvaluationLine, Journal, StepLine, WorldInfo
from daisychain.trainer.state import checkpoint_file
from daisychain.trainer.state.checkpoint_file import Head
from daisychain.trainer.state.checkpoints import KEPT, UNUSABLE, Checkpoints, Restored
from daisychain.trainer.state.training_state import TrainingState
from support.plans import generation
from unit.trainer.test_state import CODE, Make, evaluated, state_of, step

EVERYTHING = "keep_best: true\nearly_stopping: 5\nreproducible: true\n"


class Node:
    """A state with its record and its folder of checkpoints."""

    def __init__(self, folder: Path, state: TrainingState) -> None:
        self.folder = folder / "checkpoints"
        self.state = state
        self.journal = Journal(folder / "metrics.jsonl")
        self.checkpoints = Checkpoints(self.folder)

    def head(self) -> Head:
        state = self.state
        return Head(run_id=state.run_id, layout=state.layout(), tick=state.tick, step=state.step, repairs=3)

    def train(self, steps: int = 1) -> None:
        for _ in range(steps):
            step(self.state)
            world = WorldInfo("1.1", 1, "ada", (4,))
            self.journal.append(StepLine(self.state.step, 0, 0.5, 4, 0.1, world, 1.0))

    def evaluate(self, loss: float) -> None:
        self.state.commit_evaluation(evaluated(loss), generation())
        self.journal.append(EvaluationLine(self.state.step, Evaluation(loss, {}), 1.0))

    def save(self) -> Path:
        self.journal.flush()
        self.checkpoints.save(self.head(), self.state.pack())
        return self.folder / f"{self.state.tick:012d}.state"

    def restore(self) -> Restored:
        return self.checkpoints.restore(self.state, self.journal)


@pytest.fixture
def make(tmp_path: Path, make_python: Make) -> Iterator[Callable[..., Node]]:
    """Make the node of a folder again and again: each is another life of it."""
    nodes: list[Node] = []

    def made(more: str = "", **other: object) -> Node:
        nodes.append(Node(tmp_path, state_of(make_python, more, **other)))  # type: ignore[arg-type]
        return nodes[-1]

    yield made
    for node in nodes:
        node.journal.close()


def test_everything_comes_back_and_training_goes_on_to_the_bit(make: Callable[..., Node]) -> None:
    """Model, optimizer, schedule, exponents, counters, patience, the best model."""
    first = make(EVERYTHING)
    first.train(2)
    first.evaluate(0.25)
    first.train()
    first.evaluate(0.75)
    first.save()
    again = make(EVERYTHING)
    restored = again.restore()
    assert restored == Restored(first.head(), ())
    assert again.state.counters == first.state.counters
    assert again.state.best is not None
    assert (again.state.best.step, again.state.best.evaluation.loss) == (2, 0.25)
    assert (again.state.pack().header, again.state.digest()) == (
        first.state.pack().header,
        first.state.digest(),
    )
    first.train()
    again.train()
    assert torch.equal(again.state.pack().payload, first.state.pack().payload)


def test_the_record_is_cut_to_the_checkpoint_s_tick(make: Callable[..., Node]) -> None:
    first = make()
    first.train(2)
    first.save()
    first.train(3)
    first.journal.close()
    again = make()
    assert again.journal.tick == 5
    again.restore()
    assert (again.state.tick, again.journal.tick) == (2, 2)


def test_a_checkpoint_ahead_of_the_record_is_not_used(make: Callable[..., Node]) -> None:
    first = make()
    first.train(2)
    first.save()
    first.train(2)
    first.save()
    first.journal.truncate_after(3)
    again = make()
    restored = again.restore()
    assert (again.state.tick, again.journal.tick) == (2, 2)
    assert "of tick 4, and the record ends at 3" in restored.notes[0]


def test_two_are_kept_the_newest_and_the_one_before_it(make: Callable[..., Node]) -> None:
    node = make()
    for _ in range(4):
        node.train()
        node.save()
    assert sorted(path.name for path in node.folder.iterdir()) == [f"{n:012d}.state" for n in (3, 4)]
    assert KEPT == 2


def test_checkpoints_of_steps_that_the_node_no_longer_has_go_with_the_next_one(
    make: Callable[..., Node],
) -> None:
    """A node that takes over an older sound state writes below what it wrote before."""
    ahead, behind = make(), make()
    ahead.train(3)
    for number in range(1, 3):
        behind.train()
        if number == 1:
            behind.save()
    ahead.save()
    behind.save()
    assert sorted(path.name for path in ahead.folder.iterdir()) == [f"{n:012d}.state" for n in (1, 2)]


def flip(at: int) -> Callable[[Path], None]:
    """Return what changes one bit ``at`` bytes from the start, or from the end when negative."""

    def spoil(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)

    return spoil


def future(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[16:20] = struct.pack("<I", checkpoint_file.VERSION + 1)
    path.write_bytes(data)


def lying(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[32:40] = struct.pack("<Q", 1 << 60)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        pytest.param(lambda path: path.write_bytes(b""), "torn", id="emptied"),
        pytest.param(lambda path: os.truncate(path, path.stat().st_size - 1), "torn", id="cut by a byte"),
        pytest.param(lambda path: os.truncate(path, 5000), "torn", id="cut to a page or so"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes() + b"x"), "torn", id="grown"),
        pytest.param(flip(0), "no checkpoint", id="a bit of the first byte"),
        pytest.param(flip(60), "altered", id="a bit of the head"),
        pytest.param(flip(-1), "altered", id="a bit of the digest"),
        pytest.param(flip(-40), "altered", id="a bit of a tensor"),
        pytest.param(future, "version 2, this DaisyChain reads 1", id="of a later version"),
        pytest.param(lying, "bytes of state where at most", id="claims to be huge"),
        pytest.param(lambda path: path.write_bytes(os.urandom(4000)), "no checkpoint", id="noise"),
        pytest.param(lambda path: (path.unlink(), path.mkdir()), "cannot be read", id="a folder"),
    ],
)
def test_a_damaged_one_is_named_and_the_one_before_it_taken(
    make: Callable[..., Node], spoil: Callable[[Path], None], reason: str
) -> None:
    first = make(EVERYTHING)
    first.train(2)
    first.save()
    first.train()
    spoil(first.save())
    again = make(EVERYTHING)
    restored = again.restore()
    assert restored.head is not None
    assert (again.state.step, again.journal.tick, again.state.healed) == (2, 2, True)
    (note,) = restored.notes
    assert "000000000003.state was passed over" in note
    assert reason in note
    assert (first.folder / UNUSABLE).exists()
    again.train(2)
    again.save()
    assert make(EVERYTHING).restore().notes == ()


def test_every_cut_and_every_flipped_byte_is_noticed(make: Callable[..., Node]) -> None:
    node = make()
    node.train()
    path = node.save()
    data = path.read_bytes()
    most = node.state.payload_max_bytes()
    for at in range(0, len(data), 7):
        for spoilt in (data[:at], data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]):
            path.write_bytes(spoilt)
            with pytest.raises(StorageError):
                checkpoint_file.load(path, most)


def test_none_intact_begins_anew_with_the_very_first_state(make: Callable[..., Node]) -> None:
    fresh, first = make(EVERYTHING), make(EVERYTHING)
    first.train(2)
    flip(-1)(first.save())
    again = make(EVERYTHING)
    restored = again.restore()
    assert restored.head is None
    assert len(restored.notes) == 1
    assert (again.state.tick, again.journal.tick, again.state.healed) == (0, 0, True)
    assert torch.equal(again.state.pack().payload, fresh.state.pack().payload)


def test_a_state_that_fails_when_it_is_half_taken_leaves_none_of_it(make: Callable[..., Node]) -> None:
    """Its bytes are what was written; but its optimizer is not the one of this job."""
    other = make()
    other.train(2)
    other.state.engine.job.optimizer.param_groups.append({"params": [torch.nn.Parameter(torch.ones(1))]})
    other.save()
    fresh, again = make(), make()
    restored = again.restore()
    assert "does not fit this run" in restored.notes[0]
    assert (restored.head, again.state.tick, again.state.healed) == (None, 0, True)
    assert torch.equal(again.state.pack().payload, fresh.state.pack().payload)


def test_a_state_of_another_run_of_the_same_job_is_not_mixed_in(make: Callable[..., Node]) -> None:
    """An old disk: an earlier run of this job was further than this one."""
    old = make(run=RunId("0" * 16 + "-2"))
    old.train(4)
    old.save()
    again = make()
    restored = again.restore()
    assert (restored.head, again.state.step) == (None, 0)
    assert "belongs to run" in restored.notes[0]


def test_a_state_of_another_model_is_not_taken(make: Callable[..., Node]) -> None:
    old = make(code=CODE.replace("(3, 4)", "(3, 5)").replace("(4, 1)", "(5, 1)"))
    old.train()
    old.save()
    assert "another model" in make().restore().notes[0]


def test_a_state_that_is_not_finite_is_passed_over(make: Callable[..., Node]) -> None:
    node = make()
    node.train()
    node.save()
    node.train()
    with torch.no_grad():
        next(node.state.engine.job.model.parameters()).fill_(float("nan"))
    node.save()
    again = make()
    assert "not finite" in again.restore().notes[0]
    assert again.state.step == 1


def test_what_a_death_left_in_the_middle_of_a_write_is_removed(make: Callable[..., Node]) -> None:
    node = make()
    node.train()
    node.save()
    left = node.folder / ".000000000002.state.new"
    left.write_bytes(b"half of it")
    assert make().restore().notes == ()
    assert not left.exists()


def test_a_disk_without_room_leaves_what_is_there_and_says_how_much_it_takes(
    make: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = make()
    node.train()
    node.save()
    node.train()

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match=r"No space left on device.*Make room.*takes 0\.0 MB"):
            node.checkpoints.save(node.head(), node.state.pack())
    assert [path.name for path in node.folder.iterdir()] == ["000000000001.state"]


def test_cleared_nothing_is_left(make: Callable[..., Node]) -> None:
    node = make()
    node.checkpoints.clear()
    node.train()
    node.save()
    node.checkpoints.clear()
    assert not node.folder.exists()
