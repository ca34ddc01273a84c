"""Tables several times as large as the memory of whoever trains them; the limit counts the page cache too."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from daisychain.trainer.jobs.streaming.budget import size_of
from support.memory_groups import memory_group

MIB = 1 << 20
WIDTH = 64
PIECE_ROWS = 1 << 17
RUN_S = 240.0


def job(folder: Path, data: str, steps: int) -> Path:
    folder.mkdir()
    (folder / "job.yaml").write_text(
        f"kind: table\ndata: {data}\ntarget: y\ntask: classification\nglobal_batch_size: 256\n"
        f"steps: {steps}\nvalidation: 0.001\nevaluate_every_steps: {steps}\nhidden: [32]\nthreads: 1\n"
    )
    return folder


def pieces(rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield inputs and classes: one drawn piece again and again, a little different each time."""
    dice = np.random.default_rng(0)
    x = dice.standard_normal((PIECE_ROWS, WIDTH), dtype=np.float32)
    y = (x[:, 0] + x[:, 1] > 0).astype(np.int64)
    for start in range(0, rows, PIECE_ROWS):
        x[:, -1] = start
        stop = min(PIECE_ROWS, rows - start)
        yield x[:stop], y[:stop]


def write_npz(path: Path, rows: int) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, column, shape in (("x", 0, (rows, WIDTH)), ("y", 1, (rows,))):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as out:
                descr = ("<f4", "<i8")[column]
                np.lib.format.write_array_header_1_0(  # type: ignore[no-untyped-call]
                    out, {"descr": descr, "fortran_order": False, "shape": shape}
                )
                for piece in pieces(rows):
                    out.write(piece[column].tobytes())


def write_csv(path: Path, rows: int) -> None:
    lines = []
    for x, y in pieces(PIECE_ROWS // 16):
        lines = [
            ",".join(map(repr, [*row, label])) for row, label in zip(x.tolist(), y.tolist(), strict=True)
        ]
    with path.open("w") as out:
        out.write(",".join([*(f"x{column}" for column in range(WIDTH)), "y"]) + "\n")
        for start in range(0, rows, len(lines)):
            out.write("\n".join(lines[: rows - start]) + "\n")


def train(folder: Path, state: Path, limit_bytes: int) -> int:
    """Train alone within the limit; return the most memory in use."""
    command = [
        sys.executable,
        "-m",
        "daisychain.cli",
        "run",
        str(folder),
        "--state-folder",
        str(state),
        "--json",
    ]
    with memory_group(limit_bytes) as group:
        done = subprocess.run(
            group.starting(command), capture_output=True, text=True, timeout=RUN_S, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return group.peak_bytes()


def accuracy(folder: Path) -> float:
    lines = (folder / "result" / "metrics.jsonl").read_text().splitlines()
    found = [
        json.loads(line)["evaluation"]["metrics"]["accuracy"] for line in lines if '"evaluation"' in line
    ]
    return float(found[-1])


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("data", "rows", "limit_bytes", "least_bytes", "steps"),
    [
        ("rows.npz", 12_000_000, 1024 * MIB, 3_000_000_000, 400),
        ("rows.csv", 500_000, 512 * MIB, 600_000_000, 200),
    ],
    ids=["npz-3GB-in-1GiB", "csv-600MB-in-512MiB"],
)
def test_a_table_larger_than_memory_trains(
    tmp_path: Path, data: str, rows: int, limit_bytes: int, least_bytes: int, steps: int
) -> None:
    folder = job(tmp_path / "large", data, steps)
    (write_npz if data.endswith(".npz") else write_csv)(folder / data, rows)
    assert (folder / data).stat().st_size >= least_bytes
    peak = train(folder, tmp_path / "state", limit_bytes)
    assert peak <= limit_bytes
    summary = json.loads((folder / "result" / "summary.json").read_text())
    assert summary["audit"]["samples_lost"] == 0
    assert accuracy(folder) > 0.8
    if data.endswith(".npz"):
        (entry,) = (tmp_path / "state" / "cache").iterdir()
        assert size_of(entry) >= least_bytes
