"""The jobs in the repository load, and hold what their READMEs say of them."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from daisychain.trainer.jobs.load import load_job
from daisychain.trainer.jobs.loaded import LoadedJob
from daisychain.wire.job_yaml import parse_job

JOBS = Path(__file__).parents[3] / "jobs"


@pytest.fixture(autouse=True)
def import_path() -> Iterator[None]:
    path, bytecode = list(sys.path), sys.dont_write_bytecode
    yield
    sys.path[:], sys.dont_write_bytecode = path, bytecode


def load(name: str) -> LoadedJob:
    text = (JOBS / name / "job.yaml").read_text(encoding="utf-8")
    return load_job(JOBS / name, parse_job(text), torch.device("cpu"))


def test_both_hold_the_1797_digits() -> None:
    files = [(JOBS / name / "digits.csv.gz").read_bytes() for name in ("digits", "digits-cnn")]
    assert files[0] == files[1]
    assert len(files[0]) < 100_000
    lines = gzip.decompress(files[0]).decode().splitlines()
    assert len(lines) == 1 + 1797
    assert lines[0].split(",")[-1] == "digit"
    assert sorted({line.rsplit(",", 1)[1] for line in lines[1:]}) == [str(digit) for digit in range(10)]


def test_the_table() -> None:
    job = load("digits")
    assert job.validation is not None
    assert (len(job.train), len(job.validation)) == (1438, 359)
    assert not job.needs_granules  # its shares are split by single samples


def test_the_images() -> None:
    job = load("digits-cnn")
    assert job.validation is not None
    assert len(job.train) + len(job.validation) == 1797
    assert job.needs_granules
    images, digits = job.train.batch([0], 0).data
    assert images.shape == (1, 1, 8, 8)
    assert 0 <= images.min() < images.max() <= 1
    assert digits.dtype == torch.int64


@pytest.mark.parametrize("name", ["digits", "digits-cnn"])
def test_a_plain_loop_reaches_the_accuracy_that_the_readme_names(name: str) -> None:
    assert accuracy(load(name)) >= 0.95


def accuracy(job: LoadedJob) -> float:
    assert job.spec.epochs is not None
    assert job.validation is not None
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    for epoch in range(job.spec.epochs):
        order = torch.randperm(len(job.train), generator=generator)
        for indices in torch.split(order, job.spec.global_batch_size):
            job.optimizer.zero_grad()
            loss = job.loss(job.model, job.train.batch(indices.tolist(), epoch))
            (loss.sum / loss.weight).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            job.optimizer.step()
    job.model.eval()
    with torch.no_grad():
        right, count = job.metrics(job.model, job.validation.batch(range(len(job.validation)), 0))["accuracy"]
    return right / count
