"""Predictions from a result file alone, treated as the rows of training were."""

from __future__ import annotations

import csv
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import save_file

from daisychain.errors import JobError, StorageError
from daisychain.trainer.jobs import predict as predicting
from daisychain.trainer.jobs.loaded import LoadedJob
from daisychain.trainer.jobs.model_file import CARD_KEY, read_model
from daisychain.trainer.jobs.predict import predict_rows
from unit.trainer.conftest import MakePython, MakeTable
from unit.trainer.test_python_job import WHOLE

ROWS = "x,c,y\n" + "".join(f"{row},{'uvw'[row % 3]},{'no' if row < 10 else 'yes'}\n" for row in range(20))
NUMBERS = "x,y\n" + "".join(f"{row},{row * 100}\n" for row in range(20))


def trained(job: LoadedJob, steps: int = 80) -> LoadedJob:
    for group in job.optimizer.param_groups:
        group["lr"] = 0.01
    for _ in range(steps):
        job.optimizer.zero_grad()
        loss = job.loss(job.model, job.train.batch(range(len(job.train)), 0))
        (loss.sum / loss.weight).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        job.optimizer.step()
    return job


def predicted(folder: Path, rows: str) -> list[dict[str, str]]:
    (folder / "new.csv").write_text(rows, encoding="utf-8")
    count = predict_rows(folder / "model.safetensors", folder / "new.csv", folder / "out.csv")
    with (folder / "out.csv").open(newline="") as stream:
        found = list(csv.DictReader(stream, delimiter=";" if ";" in rows.splitlines()[0] else ","))
    assert count == len(found)
    return found


@pytest.fixture
def classifier(make_table: MakeTable, job_folder: Path) -> Path:
    trained(make_table(ROWS, more="validation: 0\n")).export(str(job_folder))
    return job_folder


def test_rows_come_back_with_their_class_and_its_probability(classifier: Path) -> None:
    found = predicted(classifier, "id,c,x\nfirst,u,1\nlast,v,18\n")
    assert [(row["id"], row["c"], row["x"]) for row in found] == [("first", "u", "1"), ("last", "v", "18")]
    assert [row["prediction"] for row in found] == ["no", "yes"]
    assert all(0.5 < float(row["probability"]) <= 1 for row in found)


def test_numbers_come_back_in_the_targets_unit(make_table: MakeTable, job_folder: Path) -> None:
    trained(make_table(NUMBERS, "regression", "validation: 0\n"), 300).export(str(job_folder))
    found = predicted(job_folder, "x\n5\n15\n")
    assert [float(row["prediction"]) for row in found] == pytest.approx([500, 1500], abs=60)
    assert "probability" not in found[0]


def test_the_training_rows_get_what_the_trained_model_says(make_table: MakeTable, job_folder: Path) -> None:
    rows = "x,c,y\n" + "".join(f"{row if row % 4 else ''},{'uvw'[row % 3]},{row % 2}\n" for row in range(20))
    job = trained(make_table(rows, more="validation: 0\n"), 5)
    job.export(str(job_folder))
    inputs, _ = job.train.batch(range(20), 0).data
    probabilities, classes = job.model(inputs).softmax(1).max(1)
    found = predicted(job_folder, rows)
    assert [row["prediction"] for row in found] == [str(index) for index in classes.tolist()]
    assert [float(row["probability"]) for row in found] == pytest.approx(probabilities.tolist(), abs=1e-5)


def test_unknown_categories_and_missing_values_are_predicted_all_the_same(classifier: Path) -> None:
    found = predicted(classifier, "x,c\n1,never seen\n,u\nNA,\n")
    assert all(row["prediction"] in ("no", "yes") for row in found)


def test_another_separator_is_kept(classifier: Path) -> None:
    assert [row["prediction"] for row in predicted(classifier, "x;c\n1;u\n")] == ["no"]


def test_more_rows_than_fit_into_memory_at_once(classifier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "x,c\n" + "".join(f"{row % 20},u\n" for row in range(50))
    whole = predicted(classifier, rows)
    monkeypatch.setattr(predicting, "CHUNK_ROWS", 7)
    assert predicted(classifier, rows) == whole


@pytest.mark.parametrize(
    ("rows", "where", "said"),
    [
        ("x\n1\n", "new.csv:1", "lacks 1 of the columns the model was trained on: 'c'"),
        ("x,c\n1,u\nmany,u\n", "new.csv:3", "column 'x' holds 'many', but was trained on numbers"),
        ("x,c,prediction\n1,u,no\n", "new.csv:1", "'prediction' already"),
        ("x,c\n1\n", "new.csv:2", "1 cells"),
        ("", "new.csv", "empty"),
    ],
)
def test_rows_that_do_not_fit_are_named_and_nothing_is_written(
    classifier: Path, rows: str, where: str, said: str
) -> None:
    (classifier / "out.csv").write_text("older")
    before = {path.name for path in classifier.iterdir()} | {"new.csv"}
    with pytest.raises(JobError, match=said) as caught:
        predicted(classifier, rows)
    assert caught.value.where == where
    assert (classifier / "out.csv").read_text() == "older"
    assert {path.name for path in classifier.iterdir()} == before


def test_a_python_job_says_how_its_model_is_loaded(make_python: MakePython, job_folder: Path) -> None:
    make_python(WHOLE).export(str(job_folder))
    with pytest.raises(JobError, match=r"net = model\(\) as in net\.py, then net\.load_state_dict"):
        predicted(job_folder, "x\n1\n")


def test_a_model_that_is_absent_foreign_or_torn_is_named(classifier: Path) -> None:
    path = classifier / "model.safetensors"
    whole = path.read_bytes()
    path.unlink()
    with pytest.raises(JobError, match="no such file"):
        predicted(classifier, "x,c\n1,u\n")
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(JobError, match="not a safetensors file"):
        predicted(classifier, "x,c\n1,u\n")
    save_file({"a": torch.ones(1)}, path)
    with pytest.raises(JobError, match="not a model that DaisyChain trained"):
        predicted(classifier, "x,c\n1,u\n")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "has version 2"),
        ({"version": "x"}, "damaged"),
        (
            {"network": {"inputs": 9, "hidden": [], "activation": "relu", "outputs": 2}},
            "does not fit its encoding",
        ),
        (
            {"network": {"inputs": 4, "hidden": [3], "activation": "relu", "outputs": 2}},
            "does not fit the model",
        ),
        ({"network": {"inputs": 4, "hidden": [3], "activation": "sine", "outputs": 2}}, "cannot be built"),
    ],
)
def test_a_description_that_was_tampered_with_is_refused(
    classifier: Path, change: dict[str, object], said: str
) -> None:
    path = classifier / "model.safetensors"
    tensors, card = read_model(path, "model")
    described = msgspec.to_builtins(card) | change
    save_file(tensors, path, {CARD_KEY: msgspec.json.encode(described).decode()})
    with pytest.raises(JobError, match=said):
        predicted(classifier, "x,c\n1,u\n")


def test_an_output_that_cannot_be_written_is_named(classifier: Path) -> None:
    (classifier / "new.csv").write_text("x,c\n1,u\n")
    with pytest.raises(StorageError, match="absent"):
        predict_rows(
            classifier / "model.safetensors", classifier / "new.csv", classifier / "absent" / "out.csv"
        )
