"""DaisyChain and the plain loops train one file, whole batches of it, and the same gradient."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import torch

from bench.hetero import growth, models, to_loss
from bench.hetero.mixes import MIXES
from bench.hetero.plain_train import batches, find_batch, scale_of
from bench.peers.job_module import load
from daisychain.trainer.jobs.load import load_job
from daisychain.trainer.jobs.loaded import LoadedJob
from daisychain.wire.job_yaml import parse_job


@pytest.fixture(autouse=True)
def import_path() -> Iterator[None]:
    path, bytecode = list(sys.path), sys.dont_write_bytecode
    yield
    sys.path[:], sys.dont_write_bytecode = path, bytecode


def loaded(folder: Path) -> LoadedJob:
    return load_job(folder, parse_job((folder / "job.yaml").read_text()), torch.device("cpu"))


@pytest.mark.parametrize(
    ("code", "granules"),
    [(models.convolutions(64), False), (models.granules(64), True), (models.perceptron(64, 8, 16), False)],
)
def test_the_product_takes_the_file_that_the_plain_loop_trains(
    tmp_path: Path, code: str, granules: bool
) -> None:
    file = models.write_job(tmp_path, code, 32)
    job, module = loaded(file.parent), load(file)
    assert len(job.train) == 64
    assert job.validation is None
    assert job.needs_granules is granules
    theirs = sum(each.numel() for each in module.model().parameters())
    assert sum(each.numel() for each in job.model.parameters()) == theirs


@pytest.mark.parametrize("width", growth.WIDTHS.values())
def test_parameters_are_counted_as_the_model_has_them(tmp_path: Path, width: int) -> None:
    with torch.device("meta"):
        module = load(models.write_job(tmp_path, models.perceptron(8, growth.INPUTS, width), 8))
        counted = sum(each.numel() for each in module.model().parameters())
    assert counted == models.parameters(growth.INPUTS, width)


def test_an_epoch_of_the_plain_loop_takes_every_sample_once() -> None:
    data = (torch.arange(12), torch.arange(12) * 2)
    epoch = list(islice(batches(data, 4, 1), 3))
    assert sorted(torch.cat([batch[0] for batch in epoch]).tolist()) == list(range(12))
    assert all(torch.equal(batch[1], 2 * batch[0]) for batch in epoch)


@pytest.mark.parametrize("mix", MIXES, ids=lambda mix: str(mix.name))
def test_a_split_by_hand_trains_the_gradient_of_the_whole_batch(mix: object) -> None:
    assert isinstance(mix, type(MIXES[0]))
    shares = mix.by_hand(26)
    inputs = torch.arange(26.0, dtype=torch.float64)
    weight = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)

    def gradient(part: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(((weight * part) ** 2).mean(), weight)[0]

    ranks = [gradient(part) * scale_of(len(shares), len(part), 26) for part in torch.split(inputs, shares)]
    assert torch.stack(ranks).mean() == pytest.approx(gradient(inputs).item())


def test_the_batch_that_is_found_takes_the_time(tmp_path: Path) -> None:
    module = load(models.write_job(tmp_path, models.perceptron(1024, 32, 64), 32))
    assert find_batch(module, 1e-9) == 32
    assert find_batch(module, 60.0) == 1024  # all the data there is


def test_the_tables_load_and_hold_rows_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(to_loss, "ROWS", 500)
    for goal in to_loss.GOALS:
        goal.write(tmp_path)
        job = loaded(tmp_path / goal.job)
        assert job.validation is not None
        assert len(job.validation) > 0
