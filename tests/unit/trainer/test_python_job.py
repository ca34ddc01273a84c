"""A python job: the user's functions, in every form that docs/JOBS.md allows, and every mistake by name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

import pytest
import torch
from torch import nn

from daisychain.errors import JobError, WorldError
from daisychain.trainer.jobs.loaded import LoadedJob
from unit.trainer.conftest import MakePython

HEAD = """
import torch
from torch import nn
"""
MODEL = """
def model():
    return nn.Linear(2, 1)
"""
DATA = """
def dataset(split):
    x = torch.arange(12.0).reshape(6, 2)
    return (x, x.sum(1)) if split == "train" else None
"""
LOSS = """
def loss(model, batch):
    x, y = batch
    return ((model(x)[:, 0] - y) ** 2).mean()
"""
WHOLE = HEAD + MODEL + DATA + LOSS


def predicted(job: LoadedJob) -> torch.Tensor:
    x, _ = job.train.batch(range(6), 0).data
    return cast(torch.Tensor, job.model(x))[:, 0]


def test_the_least_that_a_job_needs(make_python: MakePython) -> None:
    job = make_python(WHOLE)
    assert (len(job.train), job.validation, job.schedule) == (6, None, None)
    assert isinstance(job.optimizer, torch.optim.Adam)
    assert job.needs_granules is False
    assert job.metrics(job.model, job.train.batch([0], 0)) == {}


def test_a_mean_becomes_a_sum_over_the_samples(make_python: MakePython) -> None:
    job = make_python(WHOLE)
    batch = job.train.batch([0, 1, 5], 0)
    loss = job.loss(job.model, batch)
    squares = (predicted(job) - job.train.batch(range(6), 0).data[1]) ** 2
    assert loss.weight == 3
    torch.testing.assert_close(loss.sum, squares[[0, 1, 5]].sum())


@pytest.mark.parametrize("weight", ["w.sum()", "float(w.sum())", "w.sum().item()"])
def test_a_sum_and_its_weight_are_taken_as_they_are(make_python: MakePython, weight: str) -> None:
    job = make_python(
        HEAD
        + MODEL
        + DATA
        + f"""
def loss(model, batch):
    x, y = batch
    w = y
    return (w * (model(x)[:, 0] - y) ** 2).sum(), {weight}
"""
    )
    _, y = job.train.batch(range(6), 0).data
    loss = job.loss(job.model, job.train.batch(range(6), 0))
    assert loss.weight == float(y.sum())
    torch.testing.assert_close(loss.sum, (y * (predicted(job) - y) ** 2).sum())


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("1.5", "returned a float"),
        ("None", "returned a NoneType"),
        ("model(batch[0])", r"shape \(6, 1\)"),
        ("(model(batch[0]).sum(), 'x')", "returned a tuple"),
        ("(1.0, 2.0)", "returned a tuple"),
    ],
)
def test_a_loss_of_another_form_is_refused_with_the_remedy(
    make_python: MakePython, returned: str, said: str
) -> None:
    job = make_python(HEAD + MODEL + DATA + f"\ndef loss(model, batch):\n    return {returned}\n")
    with pytest.raises(JobError, match=said) as caught:
        job.loss(job.model, job.train.batch(range(6), 0))
    assert caught.value.where == "net.py: loss"
    assert "(sum, weight)" in caught.value.remedy


@pytest.mark.parametrize(
    "data",
    [
        "torch.utils.data.TensorDataset(x, x.sum(1))",
        "(x.numpy(), x.sum(1).numpy())",
        "[(row, row.sum()) for row in x]",
        "Items()",
    ],
)
def test_every_form_of_data_gives_the_same_batches(make_python: MakePython, data: str) -> None:
    job = make_python(
        HEAD
        + MODEL
        + LOSS
        + f"""
x = torch.arange(12.0).reshape(6, 2)

class Items:
    def __len__(self):
        return 6
    def __getitem__(self, index):
        return x[index], x[index].sum()

def dataset(split):
    return {data}
"""
    )
    values, sums = job.train.batch([4, 1], 0).data
    assert values.tolist() == [[8.0, 9.0], [2.0, 3.0]]
    assert sums.tolist() == [17.0, 5.0]
    assert len(job.validation or []) == 6


def test_a_dict_of_tensors_and_a_single_tensor_are_data_too(make_python: MakePython) -> None:
    code = HEAD + MODEL + LOSS + "\ndef dataset(split):\n    return {}\n"
    job = make_python(code.replace("{}", "{'x': torch.ones(3, 2), 'n': torch.arange(3)}"))
    assert job.train.batch([2], 0).data["n"].tolist() == [2]
    job = make_python(code.replace("{}", "torch.arange(3)"))
    assert job.train.batch([2, 0], 0).data.tolist() == [2, 0]


def test_collate_is_the_users_when_given(make_python: MakePython) -> None:
    job = make_python(
        HEAD
        + MODEL
        + LOSS
        + """
def dataset(split):
    return ["a", "bcd"]

def collate(items):
    return {"text": items, "lengths": torch.tensor([len(item) for item in items])}
"""
    )
    batch = job.train.batch([1, 0], 0)
    assert batch.samples == 2
    assert batch.data["text"] == ["bcd", "a"]
    assert batch.data["lengths"].tolist() == [3, 1]


def test_a_float64_job_is_float64_throughout(make_python: MakePython) -> None:
    job = make_python(WHOLE, "dtype: float64\n")
    assert {parameter.dtype for parameter in job.model.parameters()} == {torch.float64}
    assert job.loss(job.model, job.train.batch([0], 0)).sum.dtype == torch.float64
    assert torch.get_default_dtype() == torch.float32


def test_the_users_optimizer_schedule_and_metrics(make_python: MakePython) -> None:
    job = make_python(
        WHOLE
        + """
def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.5, momentum=0.1)

def schedule(optimizer):
    return torch.optim.lr_scheduler.StepLR(optimizer, 10)

def metrics(model, batch):
    return {"above": ((model(batch[0]) > 0).sum(), len(batch[0])), "mean": (2, 4.0)}
"""
    )
    assert isinstance(job.optimizer, torch.optim.SGD)
    assert isinstance(job.schedule, torch.optim.lr_scheduler.StepLR)
    above = float((predicted(job) > 0).sum())
    assert job.metrics(job.model, job.train.batch(range(6), 0)) == {"above": (above, 6.0), "mean": (2.0, 4.0)}


@pytest.mark.parametrize(
    ("layer", "needed"),
    [
        ("nn.BatchNorm1d(2)", True),
        ("nn.Dropout(0.1)", True),
        ("nn.LSTM(2, 2, 2, dropout=0.1)", True),
        ("nn.Dropout(0.0)", False),
        ("nn.LayerNorm(2)", False),
        ("nn.ReLU()", False),
    ],
)
def test_granules_where_samples_are_coupled_or_random(
    make_python: MakePython, layer: str, needed: bool
) -> None:
    code = WHOLE.replace("nn.Linear(2, 1)", f"nn.Sequential(nn.Linear(2, 2), {layer}, nn.Linear(2, 1))")
    assert make_python(code).needs_granules is needed
    assert make_python(code, "reproducible: true\n").needs_granules


def test_the_model_is_a_function_of_the_seed(make_python: MakePython) -> None:
    def weight(seed: int) -> list[list[float]]:
        torch.manual_seed(99)
        found: list[list[float]] = make_python(WHOLE, f"seed: {seed}\n").model.weight.tolist()  # type: ignore[operator]  # an nn.Linear
        return found

    assert weight(1) == weight(1) != weight(2)


def test_other_files_of_the_folder_can_be_imported_and_nothing_is_written(
    make_python: MakePython, job_folder: Path
) -> None:
    (job_folder / "layers_of_my_job.py").write_text("from torch import nn\nLAYER = nn.Linear(2, 1)\n")
    job = make_python(
        "import layers_of_my_job\n" + WHOLE.replace("nn.Linear(2, 1)", "layers_of_my_job.LAYER")
    )
    assert isinstance(job.model, nn.Linear)
    assert sorted(path.name for path in job_folder.iterdir()) == ["layers_of_my_job.py", "net.py"]
    assert "net" not in sys.modules


def test_a_result_is_loaded_by_load_state_dict_tied_weights_included(
    make_python: MakePython, job_folder: Path
) -> None:
    from safetensors.torch import load_file

    tied = """
class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(2, 2)
        self.b = nn.Linear(2, 2)
        self.b.weight = self.a.weight
    def forward(self, x):
        return self.b(self.a(x))

def model():
    return Tied()
"""
    job = make_python(HEAD + tied + DATA + LOSS, "seed: 1\n")
    job.export(str(job_folder))
    other = make_python(HEAD + tied + DATA + LOSS, "seed: 2\n").model
    other.load_state_dict(load_file(job_folder / "model.safetensors"))
    assert all(
        torch.equal(a, b)
        for a, b in zip(job.model.state_dict().values(), other.state_dict().values(), strict=True)
    )


def test_it_starts_from_an_earlier_result_of_the_same_shape_only(
    make_python: MakePython, job_folder: Path
) -> None:
    first = make_python(WHOLE, "seed: 1\n")
    first.export(str(job_folder))
    second = make_python(WHOLE, "seed: 2\ninit_from: model.safetensors\n")
    assert torch.equal(first.model.weight, second.model.weight)  # type: ignore[arg-type]  # an nn.Linear
    with pytest.raises(
        JobError, match=r"model\.safetensors: does not fit the model: bias is 1 there and 3 in"
    ):
        make_python(WHOLE.replace("Linear(2, 1)", "Linear(2, 3)"), "init_from: model.safetensors\n")
    (job_folder / "model.safetensors").write_bytes(b"\x80\x04pickle")
    with pytest.raises(JobError, match="not a safetensors file"):
        make_python(WHOLE, "init_from: model.safetensors\n")


@pytest.mark.parametrize(
    ("code", "where", "said"),
    [
        ("import nothing_of_that_name\n", "net.py:1", "ModuleNotFoundError"),
        ("x = 1\ndef f(:\n", "net.py:2", "SyntaxError"),
        ("\n\n1 / 0\n", "net.py:3", "ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(2)\n", "net.py:2", "SystemExit"),
        (HEAD + MODEL + DATA, "net.py", r"no function loss\(model, batch\)"),
        (HEAD + MODEL + LOSS, "net.py", r"no function dataset\(split\)"),
        (HEAD + DATA + LOSS, "net.py", r"no function model\(\)"),
        (HEAD + "model = 3\n" + DATA + LOSS, "net.py: model", "not a function"),
        (HEAD + "\ndef model():\n    return nope\n" + DATA + LOSS, "net.py:6", "NameError"),
        (HEAD + "\ndef model(size):\n    return size\n" + DATA + LOSS, "net.py: model", "TypeError"),
        (WHOLE.replace("nn.Linear(2, 1)", "3"), "net.py: model", "returned a int"),
        (WHOLE.replace("nn.Linear(2, 1)", "nn.ReLU()"), "net.py: model", "no parameter to train"),
        (WHOLE.replace("x, x.sum(1)", "x, x.sum(1)[:5]"), "net.py: dataset", r"different lengths: \[5, 6\]"),
        (WHOLE.replace("(x, x.sum(1))", "None"), "net.py: dataset", "no samples"),
        (WHOLE.replace("(x, x.sum(1))", "[]"), "net.py: dataset", "no samples"),
        (WHOLE.replace("(x, x.sum(1))", "7"), "net.py: dataset", "returned a int"),
        (
            HEAD + MODEL + LOSS + """
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter([1, 2])
def dataset(split):
    return Stream()
""",
            "net.py: dataset",
            "IterableDataset",
        ),
        (WHOLE + "\ndef optimizer(parameters):\n    return 3\n", "net.py: optimizer", "returned a int"),
        (
            WHOLE + "\ndef optimizer(parameters):\n    return torch.optim.SparseAdam(parameters)\n",
            "net.py: optimizer",
            "SparseAdam",
        ),
        (
            WHOLE + "\nfrom torch.optim.lr_scheduler import *\nschedule = ReduceLROnPlateau\n",
            "net.py: schedule",
            "goes by the held-out loss",
        ),
        (
            WHOLE.replace(" if split == \"train\" else None", "")
            + "\nfrom torch.optim.lr_scheduler import *\n"
            + "def schedule(o):\n    return ReduceLROnPlateau(o, mode='max')\n",
            "net.py: schedule",
            "waits for it to rise",
        ),
        (WHOLE + "\ndef schedule(optimizer):\n    return 3\n", "net.py: schedule", "returned a int"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_file_and_line(
    make_python: MakePython, code: str, where: str, said: str
) -> None:
    with pytest.raises(JobError, match=said) as caught:
        make_python(code)
    assert caught.value.where == where


def test_a_mistake_in_a_file_that_is_imported_names_that_file(
    make_python: MakePython, job_folder: Path
) -> None:
    (job_folder / "helpers_of_my_job.py").write_text("def f():\n    raise ValueError('broken')\n")
    with pytest.raises(JobError, match="ValueError: broken") as caught:
        make_python("import helpers_of_my_job\nhelpers_of_my_job.f()\n")
    assert caught.value.where == "helpers_of_my_job.py:2"


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (WHOLE.replace("x, y = batch", "x, y, z = batch"), 13),
        (WHOLE.replace(".mean()", ".mean() + model.absent"), 14),
    ],
)
def test_a_mistake_in_loss_names_its_line_when_it_is_called(
    make_python: MakePython, code: str, line: int
) -> None:
    job = make_python(code)
    with pytest.raises(JobError, match=r"loss\(\) raised") as caught:
        job.loss(job.model, job.train.batch([0], 0))
    assert caught.value.where == f"net.py:{line}"


def test_a_mistake_in_an_item_or_in_metrics_names_its_line(make_python: MakePython) -> None:
    job = make_python(
        HEAD
        + MODEL
        + LOSS
        + """
class Items:
    def __len__(self):
        return 3
    def __getitem__(self, index):
        raise OSError("no such image")
def dataset(split):
    return Items()
def metrics(model, batch):
    return {"a": 1}
"""
    )
    with pytest.raises(JobError, match=r"dataset\.__getitem__\(\) raised OSError: no such image") as caught:
        job.train.batch([0], 0)
    assert caught.value.where == "net.py:16"
    with pytest.raises(JobError, match="Return a dict of pairs"):
        job.metrics(job.model, make_python(WHOLE).train.batch([0], 0))


@pytest.mark.parametrize("error", [WorldError("broken"), MemoryError(), torch.OutOfMemoryError()])
def test_what_is_no_fault_of_the_code_passes_through(make_python: MakePython, error: Exception) -> None:
    job = make_python(WHOLE)

    class Failing(nn.Module):
        def forward(self, _: torch.Tensor) -> torch.Tensor:
            raise error

    with pytest.raises(type(error)):
        job.loss(Failing(), job.train.batch([0], 0))


@pytest.mark.parametrize("key", ["keep_best: true", "early_stopping: 2"])
def test_keys_that_need_held_out_samples_say_so(make_python: MakePython, key: str) -> None:
    with pytest.raises(JobError, match="gives none") as caught:
        make_python(WHOLE, f"{key}\n")
    assert caught.value.where == f"job.yaml: {key.partition(':')[0]}"
