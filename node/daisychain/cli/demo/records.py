"""A node's result folder, read without torch: the summary, the metrics and the model file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from daisychain.errors import StorageError
from daisychain.trainer.record.journal import StepLine, parse_line
from daisychain.trainer.record.results import METRICS_FILE, MODEL_FILE, Summary, read_summary


@dataclass(frozen=True, slots=True)
class Record:
    """What one node published: its summary, its committed steps and its model file."""

    summary: Summary
    lines: tuple[StepLine, ...]
    model_file: Path


def read_record(job_folder: Path) -> Record:
    """Return what a node published for its copy of the job; raises `StorageError` when it did not."""
    folder = job_folder / "result"
    summary = read_summary(folder)
    try:
        raw = (folder / METRICS_FILE).read_bytes()
    except OSError as error:
        raise StorageError(f"{folder / METRICS_FILE} cannot be read: {error.strerror}") from None
    lines = (parse_line(line) for line in raw.splitlines())
    steps = tuple(line for line in lines if isinstance(line, StepLine))
    return Record(summary, steps, folder / MODEL_FILE)


def same_file(files: list[Path]) -> bool:
    """Return whether all the files hold the same bytes."""
    first = files[0].read_bytes()
    return all(file.read_bytes() == first for file in files[1:])


def max_relative_difference(first: Path, second: Path) -> float:
    """Return the greatest ``norm(a - b) / norm(a)`` over the tensors of two model files.

    Infinite when they do not hold the same tensors.
    """
    import numpy as np
    from safetensors.numpy import load_file

    a, b = load_file(first), load_file(second)
    if a.keys() != b.keys() or any(a[name].shape != b[name].shape for name in a):
        return float("inf")
    worst = 0.0
    for name, tensor in a.items():
        one, other = tensor.astype(np.float64), b[name].astype(np.float64)
        norm = float(np.linalg.norm(one))
        difference = float(np.linalg.norm(one - other))
        worst = max(worst, difference / norm if norm else difference)
    return worst
