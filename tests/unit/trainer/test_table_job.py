"""A table job: its split, network, loss, metrics and result file."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from daisychain.errors import JobError
from daisychain.trainer.jobs.loaded import LoadedJob, Samples
from daisychain.trainer.jobs.model_file import read_model
from daisychain.trainer.jobs.streaming.held_out import HeldOut
from unit.trainer.conftest import MakeTable

ROWS = "x,c,y\n" + "".join(f"{row},{'uvw'[row % 3]},{'no' if row < 10 else 'yes'}\n" for row in range(20))
NUMBERS = "x,y\n" + "".join(f"{row},{row * 100}\n" for row in range(20))


def data(samples: Samples | None) -> tuple[torch.Tensor, torch.Tensor]:
    assert samples is not None
    inputs, targets = samples.batch(range(len(samples)), 0).data
    return inputs, targets


def test_the_parts_of_a_classification(make_table: MakeTable) -> None:
    job = make_table(ROWS, more="hidden: [5]\nvalidation: 0.25\n")
    assert (len(job.train), len(job.validation or [])) == (15, 5)
    inputs, targets = data(job.train)
    assert inputs.shape == (15, 4)
    assert inputs.dtype == torch.float32
    assert set(targets.tolist()) <= {0, 1}
    assert {name: tuple(value.shape) for name, value in job.model.named_parameters()} == {
        "hidden.0.weight": (5, 4),
        "hidden.0.bias": (5,),
        "output.weight": (2, 5),
        "output.bias": (2,),
    }
    assert job.needs_granules is False


def test_the_loss_is_the_sum_over_the_samples(make_table: MakeTable) -> None:
    job = make_table(ROWS)
    batch = job.train.batch([3, 1, 4], 0)
    inputs, targets = batch.data
    loss = job.loss(job.model, batch)
    expected = nn.functional.cross_entropy(job.model(inputs), targets, reduction="none")
    assert loss.weight == 3
    torch.testing.assert_close(loss.sum, expected.sum())
    assert loss.sum.requires_grad


def test_accuracy_counts_what_is_right(make_table: MakeTable) -> None:
    job = make_table(ROWS)
    inputs, targets = data(job.train)
    right = int((job.model(inputs).argmax(1) == targets).sum())
    found = job.metrics(job.model, job.train.batch(range(len(job.train)), 0))
    assert found == {"accuracy": (right, len(job.train))}


def test_errors_of_a_regression_are_in_the_targets_unit(make_table: MakeTable) -> None:
    job = make_table(NUMBERS, "regression", "validation: 0\n")
    assert job.validation is None
    with torch.no_grad():
        for parameter in job.model.parameters():
            parameter.zero_()  # predicts the mean: 950
    found = job.metrics(job.model, job.train.batch(range(20), 0))
    means = {name: total / count for name, (total, count) in found.items()}
    reported = job.finish_metrics(means)
    misses = [row * 100 - 950 for row in range(20)]
    assert reported["mae"] == pytest.approx(sum(map(abs, misses)) / 20, rel=1e-5)
    assert reported["rmse"] == pytest.approx(math.sqrt(sum(m * m for m in misses) / 20), rel=1e-5)
    assert set(reported) == {"mae", "rmse"}
    loss = job.loss(job.model, job.train.batch(range(20), 0))
    assert loss.sum.item() / loss.weight == pytest.approx(1.0, rel=1e-5)


def test_it_learns(make_table: MakeTable) -> None:
    job = make_table(NUMBERS, "regression", "validation: 0\nlearning_rate: 0.01\n")
    for _ in range(200):
        job.optimizer.zero_grad()
        loss = job.loss(job.model, job.train.batch(range(20), 0))
        (loss.sum / loss.weight).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        job.optimizer.step()
    total, count = job.metrics(job.model, job.train.batch(range(20), 0))["mae"]
    assert total / count < 50


def test_rows_without_a_target_are_left_out_and_reported(make_table: MakeTable) -> None:
    job = make_table(ROWS + "1,u,\n2,v,NA\n")
    assert len(job.train) + len(job.validation or []) == 20
    assert "2 of 22 rows have no target: left out" in job.notes


def test_float64_holds_everywhere_and_is_put_back(make_table: MakeTable) -> None:
    job = make_table(ROWS, more="dtype: float64\n")
    assert data(job.train)[0].dtype == torch.float64
    assert {parameter.dtype for parameter in job.model.parameters()} == {torch.float64}
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize("key", ["dropout: 0.5", "reproducible: true"])
def test_dropout_and_reproducible_jobs_need_granules(make_table: MakeTable, key: str) -> None:
    assert make_table(ROWS, more=f"{key}\n").needs_granules


@pytest.mark.parametrize(
    ("optimizer", "kind"),
    [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD)],
)
def test_the_optimizer_is_the_one_named(
    make_table: MakeTable, optimizer: str, kind: type[torch.optim.Optimizer]
) -> None:
    job = make_table(ROWS, more=f"optimizer: {optimizer}\nlearning_rate: 0.25\nweight_decay: 0.5\n")
    assert type(job.optimizer) is kind
    (group,) = job.optimizer.param_groups
    assert (group["lr"], group["weight_decay"]) == (0.25, 0.5)


def weights(job: LoadedJob) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in job.model.parameters()])


def test_the_model_is_a_function_of_the_seed(make_table: MakeTable) -> None:
    first = weights(make_table(ROWS, more="seed: 3\n"))
    torch.manual_seed(99)
    assert torch.equal(first, weights(make_table(ROWS, more="seed: 3\n")))
    assert not torch.equal(first, weights(make_table(ROWS, more="seed: 4\n")))


@pytest.mark.parametrize(
    ("rows", "more", "where", "said"),
    [
        ("x,z\n1,2\n", "", "rows.csv", "no column 'y'"),
        ("x,y\n", "", "rows.csv", "no rows"),
        ("x,y\n1,\n", "", "rows.csv", "no row has a value in 'y'"),
        ("x,y\n1,a\n2,b\n", "ignore: [z]\n", "job.yaml: ignore", "no column 'z'"),
        ("x,y\n1,a\n2\n", "", "rows.csv:3", "1 cells"),
    ],
)
def test_data_that_cannot_be_used_is_named(
    make_table: MakeTable, rows: str, more: str, where: str, said: str
) -> None:
    with pytest.raises(JobError, match=said) as caught:
        make_table(rows, more=more)
    assert caught.value.where == where


def test_text_as_the_target_of_a_regression_is_named(make_table: MakeTable) -> None:
    with pytest.raises(JobError, match="holds text, but the task is regression"):
        make_table("x,y\n1,2\n2,low\n", "regression")


def test_an_absent_file_and_one_outside_are_named(make_table: MakeTable, job_folder: Path) -> None:
    with pytest.raises(
        JobError, match=r"job\.yaml: init_from: start\.safetensors is not in the job's folder"
    ):
        make_table(ROWS, more="init_from: start.safetensors\n")
    outside = job_folder.parent / "elsewhere"
    outside.mkdir()
    (outside / "start.safetensors").write_text("x")
    (job_folder / "link").symlink_to(outside)
    with pytest.raises(JobError, match="outside the job's folder"):
        make_table(ROWS, more="init_from: link/start.safetensors\n")


def test_it_starts_from_an_earlier_result(make_table: MakeTable, job_folder: Path) -> None:
    first = make_table(ROWS, more="seed: 1\n")
    first.export(str(job_folder))
    second = make_table(ROWS, more="seed: 2\ninit_from: model.safetensors\n")
    # another seed holds out other rows, yet inputs and classes mean the same
    assert torch.equal(weights(first), weights(second))


def test_a_start_that_means_something_else_is_refused_by_name(
    make_table: MakeTable, job_folder: Path
) -> None:
    make_table(ROWS, more="ignore: [c]\n").export(str(job_folder))
    with pytest.raises(JobError, match="the first difference: 'c="):
        make_table(ROWS, more="init_from: model.safetensors\n")
    make_table(ROWS, more="hidden: [3]\n").export(str(job_folder))
    with pytest.raises(JobError, match=r"hidden\.0\.bias is 3 there and 128 in the model"):
        make_table(ROWS, more="init_from: model.safetensors\n")


def test_the_result_tells_what_it_is(make_table: MakeTable, job_folder: Path) -> None:
    job = make_table(ROWS)
    job.export(str(job_folder))
    tensors, card = read_model(job_folder / "model.safetensors", "model")
    assert card is not None
    assert (card.job, card.kind, card.torch) == ("my-job", "table", torch.__version__)
    assert card.spec["global_batch_size"] == 4
    assert card.encoding is not None
    assert getattr(card.encoding.target, "classes", None) == ("no", "yes")
    assert all(torch.equal(tensors[name], value) for name, value in job.model.state_dict().items())


def test_equal_models_make_equal_files(make_table: MakeTable, job_folder: Path) -> None:
    files = []
    for _ in range(3):
        make_table(ROWS).export(str(job_folder))
        files.append((job_folder / "model.safetensors").read_bytes())
    assert files[0] == files[1] == files[2]


def splitmix(number: int) -> int:
    """One output of SplitMix64 (Steele, Lea and Flood, 2014) after ``number``."""
    mask = (1 << 64) - 1
    number = (number + 0x9E3779B97F4A7C15) & mask
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & mask
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & mask
    return number ^ (number >> 31)


def held_out_rows(rows: int, fraction: float, seed: int) -> npt.NDArray[np.bool_]:
    held_out = HeldOut(rows, fraction, seed)
    pieces = [held_out.mask(start, min(rows, start + 7)) for start in range(0, rows, 7)]
    return np.concatenate(pieces)


@pytest.mark.parametrize("seed", [0, 7, 2**63 - 1])
def test_held_out_rows_are_fixed_by_seed_and_row_alone(seed: int) -> None:
    golden, mask = 0x9E3779B97F4A7C15, (1 << 64) - 1
    hashes = [splitmix((splitmix(seed) + row * golden) & mask) for row in range(20)]
    least = sorted(range(20), key=lambda row: hashes[row])[:5]
    assert np.flatnonzero(held_out_rows(20, 0.25, seed)).tolist() == sorted(least)


@given(st.integers(1, 300), st.floats(0, 0.999), st.integers(0, 2**63 - 1))
def test_the_held_out_share_is_exact_and_training_is_never_empty(
    rows: int, fraction: float, seed: int
) -> None:
    held_out = held_out_rows(rows, fraction, seed)
    count = int(held_out.sum())
    assert held_out.shape == (rows,)
    assert count < rows
    if fraction == 0 or rows == 1:
        assert count == 0
    else:
        assert count == min(rows - 1, max(1, round(fraction * rows)))


def test_another_seed_holds_out_other_rows() -> None:
    assert not np.array_equal(held_out_rows(100, 0.2, 1), held_out_rows(100, 0.2, 2))
