"""Jobs in temporary folders."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from daisychain.trainer.jobs.load import load_job
from daisychain.trainer.jobs.loaded import LoadedJob
from daisychain.wire.job_yaml import parse_job

MakeTable = Callable[..., LoadedJob]
MakePython = Callable[..., LoadedJob]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """These models are too small to gain from more, and two test runs side by side would fight over them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def job_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "my-job"
    folder.mkdir()
    return folder


@pytest.fixture
def make_table(job_folder: Path) -> MakeTable:
    """Load a table job: its rows, its task, and more lines of job.yaml."""

    def make(rows: str, task: str = "classification", more: str = "", target: str = "y") -> LoadedJob:
        (job_folder / "rows.csv").write_text(rows, encoding="utf-8")
        text = (
            f"kind: table\ndata: rows.csv\ntarget: {target}\ntask: {task}\nglobal_batch_size: 4\nepochs: 1\n"
        )
        return load_job(job_folder, parse_job(text + more), torch.device("cpu"))

    return make


@pytest.fixture
def make_python(job_folder: Path) -> Iterator[MakePython]:
    """Load a python job: its code, and more lines of job.yaml. The import path is put back afterwards."""
    path, modules, bytecode = list(sys.path), set(sys.modules), sys.dont_write_bytecode

    def make(code: str, more: str = "") -> LoadedJob:
        (job_folder / "net.py").write_text(textwrap.dedent(code), encoding="utf-8")
        text = "kind: python\nfile: net.py\nglobal_batch_size: 4\nepochs: 1\n"
        return load_job(job_folder, parse_job(text + more), torch.device("cpu"))

    yield make
    sys.path[:], sys.dont_write_bytecode = path, bytecode
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(job_folder)):
            del sys.modules[name]
