"""An .npz is a table as a CSV is: the same rows to the bit; what lies about itself is refused by name."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from daisychain.errors import JobError
from daisychain.trainer.jobs.load import load_job
from daisychain.trainer.jobs.loaded import LoadedJob, Samples
from daisychain.trainer.jobs.streaming import blocks
from daisychain.trainer.jobs.streaming.room import ANY_ROOM, DataRoom
from daisychain.wire.job_yaml import parse_job

Arrays = dict[str, npt.NDArray[Any]]
ROWS = 300


def arrays() -> Arrays:
    dice = np.random.default_rng(3)
    wide = dice.standard_normal((ROWS, 3))
    wide[5, 1] = np.nan
    return {
        "x": wide,
        "single": dice.standard_normal(ROWS).astype(np.float32),
        "count": dice.integers(0, 9, ROWS),
        "word": np.array([f"w{row % 5}" for row in range(ROWS)]),
        "y": dice.integers(0, 3, ROWS),
    }


def load(folder: Path, name: str, room: DataRoom = ANY_ROOM, task: str = "classification") -> LoadedJob:
    text = f"kind: table\ndata: {name}\ntarget: y\ntask: {task}\nglobal_batch_size: 8\nepochs: 1\n"
    return load_job(folder, parse_job(text), torch.device("cpu"), room)


def bits(samples: Samples | None) -> list[bytes]:
    assert samples is not None
    return [column.numpy().tobytes() for column in samples.batch(range(len(samples)), 0).data]


def write_csv(path: Path, table: Arrays) -> None:
    columns = {
        name if array.ndim == 1 else f"{name}.{column}": array if array.ndim == 1 else array[:, column]
        for name, array in table.items()
        for column in range(1 if array.ndim == 1 else array.shape[1])
    }
    lines = [",".join(columns)]
    lines += [
        ",".join(
            str(float(array[row])) if array.dtype.kind == "f" else str(array[row])
            for array in columns.values()
        )
        for row in range(ROWS)
    ]
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("memory_bytes", [1 << 30, 0])
def test_an_npz_gives_the_rows_of_the_same_csv(
    tmp_path: Path,
    save: Callable[..., None],
    task: str,
    memory_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_CELLS", 7 * 11)
    save(tmp_path / "rows.npz", **arrays())
    write_csv(tmp_path / "rows.csv", arrays())
    one = load(tmp_path, "rows.npz", DataRoom(memory_bytes, 0, tmp_path / "cache"), task)
    other = load(tmp_path, "rows.csv", task=task)
    assert bits(one.train) == bits(other.train)
    assert bits(one.validation) == bits(other.validation)
    assert one.notes == other.notes


def npy(array: npt.NDArray[Any], **changed: object) -> bytes:
    """An array's bytes, with another header."""
    header = np.lib.format.header_data_from_array_1_0(array) | changed  # type: ignore[no-untyped-call]
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, header)  # type: ignore[no-untyped-call]
    return out.getvalue() + array.tobytes()


def refused(tmp_path: Path, members: dict[str, bytes], said: str) -> None:
    with zipfile.ZipFile(tmp_path / "rows.npz", "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(JobError, match=said):
        load(tmp_path, "rows.npz")


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    numbers, y = np.arange(6.0), npy(np.arange(6))
    refused(tmp_path, {"x.npy": npy(numbers, shape=(1 << 50,)), "y.npy": y}, r"x\.npy: its header tells")
    refused(tmp_path, {"x.npy": npy(numbers, shape=(5,)), "y.npy": y}, r"x\.npy: its header tells 40 bytes")
    refused(tmp_path, {"x.npy": npy(numbers, shape=(-1,)), "y.npy": y}, r"x\.npy: its header tells")
    refused(tmp_path, {"x.npy": npy(numbers, descr="|O"), "y.npy": y}, "never unpickled")
    refused(tmp_path, {"x.npy": npy(numbers.reshape(3, 2), fortran_order=True), "y.npy": y}, "Fortran")
    refused(tmp_path, {"x.npy": npy(numbers.reshape(1, 2, 3)), "y.npy": y}, "its shape is")
    refused(tmp_path, {"x.npy": npy(np.arange(7.0)), "y.npy": y}, "7 rows, but 'y' 6")
    refused(tmp_path, {"x.npy": b"\x93NUMPY\x01\x00\xff\xff{", "y.npy": y}, "header cannot be read")
    refused(tmp_path, {"x.txt": b"1", "y.npy": y}, r"x\.txt: is no \.npy")
    refused(tmp_path, {}, "no arrays")
    refused(tmp_path, {"x.npy": npy(numbers)}, "no column 'y'")
    (tmp_path / "rows.npz").write_bytes(b"PK no archive")
    with pytest.raises(JobError, match="cannot be read"):
        load(tmp_path, "rows.npz")


def test_pickled_objects_run_no_code(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (pytest.fail, ("unpickled",))

    np.savez(tmp_path / "rows.npz", x=np.array([Bomb(), Bomb()], dtype=object), y=np.array([0, 1]))
    with pytest.raises(JobError, match="never unpickled"):
        load(tmp_path, "rows.npz")


@given(st.binary(max_size=60), st.integers(0, 2000))
def test_any_damage_is_a_table_or_a_job_error(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, place: int
) -> None:
    folder = tmp_path_factory.mktemp("npz")
    out = io.BytesIO()
    np.savez_compressed(out, x=np.arange(40.0), y=np.arange(40) % 2)
    data = bytearray(out.getvalue())
    place %= len(data)
    data[place : place + len(junk)] = junk
    (folder / "rows.npz").write_bytes(data)
    try:
        load(folder, "rows.npz")
    except JobError as error:
        assert "rows.npz" in error.where
