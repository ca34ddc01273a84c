"""A job's folder and its checked job.yaml become a `LoadedJob`, the same on every machine."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import assert_never

import numpy as np
import torch

from daisychain.core.job_spec import JobSpec, PythonModel, TableModel
from daisychain.errors import JobError
from daisychain.trainer.jobs.loaded import LoadedJob
from daisychain.trainer.jobs.python_job import PythonFiles, load_python
from daisychain.trainer.jobs.streaming.room import ANY_ROOM, DataRoom
from daisychain.trainer.jobs.table_job import TableFiles, load_table

DTYPES = {"float32": torch.float32, "float64": torch.float64}


def load_job(folder: Path, spec: JobSpec, device: torch.device, room: DataRoom = ANY_ROOM) -> LoadedJob:
    """Return the job in ``folder``, its data within ``room``, its model on ``device``.

    The model is initialised from the job's seed: it is made on the CPU with torch's, numpy's and
    Python's generators seeded, so every machine starts from the same one; torch's default dtype is the
    job's meanwhile. The generators are left as loading left them. Raises `JobError` for whatever is wrong
    with the job's files or code.
    """
    init = None if spec.init_from is None else (job_file(folder, spec.init_from, "init_from"), spec.init_from)
    torch.manual_seed(spec.seed)
    np.random.seed(spec.seed & 0xFFFFFFFF)
    random.seed(spec.seed)
    with _default_dtype(DTYPES[spec.dtype]):
        match spec.model:
            case TableModel() as table:
                data = job_file(folder, table.data, "data")
                return load_table(spec, table, TableFiles(folder, data, init), device, room)
            case PythonModel() as python:
                file = job_file(folder, python.file, "file")
                return load_python(spec, PythonFiles(folder, file, init), device, room)
            case _:
                assert_never(spec.model)


def job_file(folder: Path, name: str, key: str) -> Path:
    """Return the path of a file that the job names under ``key``.

    Raises `JobError` when it is absent, or outside the folder (a link to a file counts as the file; a
    folder on the way must not lead out).
    """
    path = folder / name
    if not path.parent.resolve().is_relative_to(folder.resolve()) or ".." in Path(name).parts:
        raise JobError(f"job.yaml: {key}", f"{name} is outside the job's folder", "Copy it into the folder.")
    if not path.is_file():
        raise JobError(
            f"job.yaml: {key}",
            f"{name} is not in the job's folder {folder.name}",
            "Correct the name, or add it.",
        )
    return path


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
