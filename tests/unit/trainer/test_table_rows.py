"""A table larger than memory trains as one that is held: the same bits, whatever lies where."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from daisychain.core.ids import RunId
from daisychain.errors import JobError
from daisychain.trainer.engine.engine import Engine
from daisychain.trainer.engine.exchange import Exchange
from daisychain.trainer.engine.timeline import Timeline
from daisychain.trainer.jobs.load import load_job
from daisychain.trainer.jobs.loaded import LoadedJob, Samples
from daisychain.trainer.jobs.streaming import arrays, blocks
from daisychain.trainer.jobs.streaming.budget import STAGED, entries, size_of
from daisychain.trainer.jobs.streaming.lease import Lease
from daisychain.trainer.jobs.streaming.room import DataRoom
from daisychain.trainer.jobs.table_data import read_table
from daisychain.trainer.state.training_state import Action, TrainingState
from daisychain.wire.job_yaml import parse_job
from support.local_exchange import LocalWorld
from support.plans import generation

ROWS = 700
TASKS = ("classification", "regression")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job whose table has numbers of every size, gaps, text, a class, and rows without a target."""
    folder = tmp_path / "job"
    folder.mkdir()
    dice = random.Random(5)
    lines = ["a,b,c,kind,where,y,z"]
    for row in range(ROWS):
        wild = dice.gauss(0, 1) * 10 ** dice.randint(-20, 20)
        gap = "" if row % 7 == 0 else repr(dice.random())
        place = "" if row % 11 == 0 else f"p{min(dice.randint(0, 99), dice.randint(0, 99))}"
        label = "" if row % 50 == 3 else ("no", "yes", "maybe")[dice.randint(0, 2)]
        lines.append(f"{wild!r},{gap},{row % 13},{'uvw'[row % 3]},{place},{label},{dice.gauss(5, 2)!r}")
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few rows and of a few hashed bytes, so that a small table has many of both."""
    monkeypatch.setattr(blocks, "BLOCK_CELLS", 7 * 37)
    monkeypatch.setattr(arrays, "HASHED_BYTES", 512)
    monkeypatch.setattr(arrays, "SYNC_BYTES", 4096)


def load(job: Path, room: DataRoom | None, task: str = "classification", more: str = "") -> LoadedJob:
    target = "y" if task == "classification" else "z"
    text = (
        f"kind: table\ndata: rows.csv\ntarget: {target}\ntask: {task}\nglobal_batch_size: 64\nepochs: 2\n"
        f"hidden: [8]\n{more}"
    )
    return load_job(job, parse_job(text), torch.device("cpu"), room or DataRoom())


def on_disk(folder: Path, memory_bytes: int = 0, max_bytes: int = 0) -> DataRoom:
    return DataRoom(memory_bytes, 0, folder, max_bytes)


def cached(folder: Path) -> list[Path]:
    return [entry for entry in entries(folder) if not entry.name.startswith(STAGED)]


def bits(samples: Samples | None) -> list[bytes]:
    assert samples is not None
    return [column.numpy().tobytes() for column in samples.batch(range(len(samples)), 0).data]


def trained(loaded: LoadedJob) -> dict[str, bytes]:
    def main(exchange: Exchange) -> dict[str, bytes]:
        timeline = Timeline.of(loaded.spec, len(loaded.train), loaded.validation is not None)
        state = TrainingState(RunId("0" * 16 + "-1"), Engine(loaded, timeline))
        while (action := state.next()) is not Action.FINISH:
            engine = state.engine
            if action is Action.EVALUATE:
                shares = (engine.evaluation_units(),)
                state.commit_evaluation(engine.evaluate(exchange, shares), generation())
            else:
                position = timeline.position(state.step)
                state.commit_step(
                    engine.reduce_step(exchange, position, (engine.units(position),)), generation()
                )
        return {name: value.detach().numpy().tobytes() for name, value in loaded.model.state_dict().items()}

    return LocalWorld(1).run(main)[0]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.usefixtures("small_pieces")
def test_rows_on_disk_are_those_in_memory_to_the_bit(
    job: Path, tmp_path: Path, task: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = f"dtype: {dtype}\n"
    mapped = load(job, on_disk(tmp_path / "cache"), task, more)
    assert len(cached(tmp_path / "cache")) == 1
    monkeypatch.undo()  # in memory with blocks of the usual size
    held = load(job, None, task, more)
    assert mapped.notes == held.notes
    assert bits(mapped.train) == bits(held.train)
    assert bits(mapped.validation) == bits(held.validation)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    mapped.export(str(tmp_path / "one"))
    held.export(str(tmp_path / "other"))
    exported = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "other")]
    assert exported[0] == exported[1]  # the encoding with its means and classes is in there
    assert trained(mapped) == trained(held)


@pytest.mark.usefixtures("small_pieces")
def test_a_table_that_is_read_into_memory_but_too_large_encoded_goes_to_disk(
    job: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "cache"
    mapped = load(job, on_disk(folder, memory_bytes=50_000))
    assert len(cached(folder)) == 1
    assert bits(mapped.train) == bits(load(job, None).train)
    load(job, on_disk(tmp_path / "other", memory_bytes=10_000_000))
    assert not cached(tmp_path / "other")


def test_the_values_of_the_whole_table_decide_as_ever(job: Path) -> None:
    """The means are those of a plain calculation over all training rows."""
    loaded = load(job, None, "regression", "validation: 0\n")
    inputs, _ = loaded.train.batch(range(len(loaded.train)), 0).data
    column = [row.split(",") for row in (job / "rows.csv").read_text().splitlines()[1:]]
    values = [float(cells[0]) for cells in column]
    mean = math.fsum(values) / len(values)
    scale = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    expected = np.array([(value - mean) / scale for value in values]).astype(np.float32)
    assert inputs[:, 0].numpy().tobytes() == expected.tobytes()


@pytest.mark.usefixtures("small_pieces")
def test_a_converted_table_is_made_once(job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    first = bits(load(job, on_disk(folder)).train)

    def never(*_: object) -> None:
        raise AssertionError("the table was read again")

    monkeypatch.setattr("daisychain.trainer.jobs.table_rows.read_table", never)
    assert bits(load(job, on_disk(folder)).train) == first
    rows = job / "rows.csv"
    copy = rows.read_bytes()
    rows.unlink()
    rows.write_bytes(copy)  # another file with the same content, as on a node that fetched it anew
    assert bits(load(job, on_disk(folder)).train) == first
    for more in ("seed: 1\n", "validation: 0.3\n", "dtype: float64\n", "ignore: [a]\n"):
        with pytest.raises(AssertionError, match="read again"):
            load(job, on_disk(folder), more=more)
    rows.write_bytes(copy.replace(b"yes", b"aye"))
    with pytest.raises(AssertionError, match="read again"):
        load(job, on_disk(folder))


def truncate(entry: Path) -> None:
    os.truncate(entry / "train.inputs", 100)


def flip(entry: Path) -> None:
    with (entry / "train.inputs").open("r+b") as file:
        first = file.read(1)
        file.seek(0)
        file.write(bytes([first[0] ^ 1]))


def flip_last(entry: Path) -> None:
    path = entry / "held_out.targets"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 0x80]))


def spoil_card(entry: Path) -> None:
    path = entry / "card.json"
    path.write_bytes(path.read_bytes().replace(b'"rows":', b'"rows":1'))


def lose_card(entry: Path) -> None:
    (entry / "card.json").unlink()


def lose_array(entry: Path) -> None:
    (entry / "held_out.inputs").unlink()


@pytest.mark.parametrize("damage", [truncate, flip, flip_last, spoil_card, lose_card, lose_array])
@pytest.mark.usefixtures("small_pieces")
def test_a_damaged_entry_is_noticed_and_made_anew(
    job: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    folder = tmp_path / "cache"
    first = bits(load(job, on_disk(folder)).train)
    (entry,) = cached(folder)
    damage(entry)
    assert bits(load(job, on_disk(folder)).train) == first
    assert len(cached(folder)) == 1


@pytest.mark.usefixtures("small_pieces")
def test_what_was_used_longest_ago_makes_room_and_what_is_held_never(job: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    held = load(job, on_disk(folder))
    (first,) = cached(folder)
    size = size_of(first)
    room = on_disk(folder, memory_bytes=size - 50_000, max_bytes=int(2.5 * size))
    for seed in (1, 2, 3):
        load(job, room, more=f"seed: {seed}\n")
        assert first.exists()
        assert len(cached(folder)) == 2
        assert sum(map(size_of, cached(folder))) <= 2.5 * size
    before = bits(held.train)
    assert before == bits(load(job, None).train)


@pytest.mark.usefixtures("small_pieces")
def test_without_room_the_job_is_refused_with_both_numbers(job: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    with pytest.raises(JobError, match=r"take \d+ bytes more .* 20000 allowed.*--cache-max-bytes"):
        load(job, on_disk(folder, max_bytes=20_000))
    assert not list(folder.iterdir())
    with pytest.raises(JobError, match=r"do not fit into memory"):
        load(job, replace(on_disk(folder), cache_folder=None))


def test_what_a_dead_process_left_half_written_is_removed(job: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    left, written = folder / f"{STAGED}dead", folder / f"{STAGED}alive"
    for half in (left, written):
        half.mkdir(parents=True)
        (half / "train.inputs").write_bytes(b"half")
    lease = Lease.take(written)
    assert lease is not None
    load(job, on_disk(folder))
    assert not left.exists()
    assert written.exists()
    lease.close()


def test_a_table_that_changes_while_it_is_read_is_refused(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(*given: object) -> object:
        found = read_table(*given)  # type: ignore[arg-type]
        with (job / "rows.csv").open("a") as file:
            file.write("1,2,3,u,p1,no,4\n")
        return found

    monkeypatch.setattr("daisychain.trainer.jobs.table_rows.read_table", slowly)
    with pytest.raises(JobError, match="changed while it was read"):
        load(job, on_disk(tmp_path / "cache"))
    assert not list((tmp_path / "cache").iterdir())


def test_the_disk_is_told_the_rows_in_few_requests(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []
    loaded = load(job, on_disk(tmp_path / "cache"))
    real = os.posix_fadvise

    def advise(descriptor: int, offset: int, size: int, advice: int) -> None:
        told.append((offset, size))
        real(descriptor, offset, size, advice)

    monkeypatch.setattr(os, "posix_fadvise", advise)
    loaded.train.batch([500, 0, 1, 2], 0)
    row_bytes = loaded.train.batch([0], 0).data[0].nbytes
    pages = {page for offset, size in told[:-1] for page in range(offset // 4096, (offset + size) // 4096)}
    assert {500 * row_bytes // 4096, 0} <= pages
    assert len(told) - 1 <= 3
