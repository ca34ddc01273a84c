"""job.yaml: what it may say becomes a JobSpec; everything else is a JobError that names the key."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daisychain.core.job_spec import JobSpec, PythonModel, TableModel, Task
from daisychain.errors import JobError
from daisychain.wire import job_yaml
from daisychain.wire.job_yaml import parse_job
from daisychain.wire.plain_yaml import PlainYamlError, read_mapping

TABLE = "kind: table\ndata: a.csv\ntarget: y\ntask: regression\nglobal_batch_size: 8\nepochs: 2\n"
PYTHON = "kind: python\nfile: net.py\nglobal_batch_size: 8\nsteps: 2\n"


def refusal(text: str) -> JobError:
    with pytest.raises(JobError) as caught:
        parse_job(text)
    return caught.value


def test_a_table_job_gets_its_defaults_from_the_spec_alone() -> None:
    assert parse_job(TABLE) == JobSpec(
        model=TableModel(data="a.csv", target="y", task=Task.REGRESSION),
        global_batch_size=8,
        epochs=2,
        steps=None,
    )


def test_a_python_job() -> None:
    assert parse_job(PYTHON) == JobSpec(
        model=PythonModel(file="net.py"), global_batch_size=8, epochs=None, steps=2
    )


def test_every_key_is_taken() -> None:
    spec = parse_job(
        TABLE
        + "ignore: [id, '7']\nhidden: [16, 8]\nactivation: gelu\ndropout: 0.25\noptimizer: sgd\n"
        + "learning_rate: 1e-2\nweight_decay: 0\nseed: 7\nvalidation: 0.1\nevaluate_every_steps: 50\n"
        + "clip_grad_norm: 1\ndtype: float64\nkeep_best: true\nearly_stopping: 3\n"
        + "init_from: start.safetensors\nreproducible: true\ngranule: 16\nthreads: 2\nmin_nodes: 3\n"
        + "max_nodes: 5\npriority: -2\n"
    )
    assert spec == JobSpec(
        model=TableModel("a.csv", "y", Task.REGRESSION, ("id", "7"), (16, 8), "gelu", 0.25, "sgd", 0.01, 0.0),
        global_batch_size=8,
        epochs=2,
        steps=None,
        seed=7,
        validation=0.1,
        evaluate_every_epochs=None,
        evaluate_every_steps=50,
        clip_grad_norm=1.0,
        dtype="float64",
        keep_best=True,
        early_stopping=3,
        init_from="start.safetensors",
        reproducible=True,
        granule=16,
        threads=2,
        min_nodes=3,
        max_nodes=5,
        priority=-2,
    )


def test_every_field_of_the_spec_has_a_rule() -> None:
    fields = {field.name for kind in (JobSpec, TableModel, PythonModel) for field in dataclasses.fields(kind)}
    assert set(job_yaml._RULES) == fields - {"model"}


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("", "job.yaml", "empty"),
        ("- a\n", "job.yaml:1", "key: value"),
        ("a: [1\n", "job.yaml:2", "not YAML"),
        ("data: a.csv\n", "job.yaml", "kind is missing"),
        ("kind: image\n", "job.yaml:1: kind", "'image'"),
        (TABLE + "epoch: 3\n", "job.yaml:7: epoch", "Did you mean epochs?"),
        (TABLE + "batch_size: 3\n", "job.yaml:7: batch_size", "global_batch_size"),
        (TABLE + "file: a.py\n", "job.yaml:7: file", "kind: python only"),
        (PYTHON + "hidden: [3]\n", "job.yaml:5: hidden", "kind: table only"),
        (PYTHON + "validation: 0.1\n", "job.yaml:5: validation", "dataset('validation')"),
        (TABLE.replace("target: y\n", ""), "job.yaml", "target is missing"),
        (TABLE.replace("epochs: 2\n", ""), "job.yaml", "neither epochs nor steps"),
        (TABLE + "steps: 3\n", "job.yaml:7: steps", "both given"),
        (TABLE.replace("epochs: 2", "epochs: two"), "job.yaml:6: epochs", "found 'two'"),
        (TABLE.replace("epochs: 2", "epochs: 2.5"), "job.yaml:6: epochs", "whole number"),
        (TABLE.replace("epochs: 2", "epochs: 0"), "job.yaml:6: epochs", "from 1"),
        (TABLE.replace("epochs: 2", "epochs: true"), "job.yaml:6: epochs", "found true"),
        (TABLE.replace("target: y", "target: 5"), "job.yaml:3: target", "in quotes"),
        (TABLE.replace("regression", "ranking"), "job.yaml:4: task", "classification, regression"),
        (TABLE.replace("a.csv", "../a.csv"), "job.yaml:2: data", "inside the job's folder"),
        (TABLE.replace("a.csv", "/etc/passwd"), "job.yaml:2: data", "inside the job's folder"),
        (TABLE.replace("a.csv", "result/a.csv"), "job.yaml:2: data", "outside result/"),
        (TABLE + "learning_rate: .nan\n", "job.yaml:7: learning_rate", "greater than 0"),
        (TABLE + "learning_rate: 1e999\n", "job.yaml:7: learning_rate", "greater than 0"),
        (TABLE + "dropout: 1\n", "job.yaml:7: dropout", "less than 1"),
        (TABLE + "hidden: [0]\n", "job.yaml:7: hidden", "layer widths"),
        (TABLE + "hidden: 12\n", "job.yaml:7: hidden", "layer widths"),
        (TABLE + "reproducible: yes\n", "job.yaml:7: reproducible", "true or false"),
        (TABLE + "ignore: [y]\n", "job.yaml:7: ignore", "target column"),
        (TABLE + "validation: 0\nkeep_best: true\n", "job.yaml:8: keep_best", "validation is 0"),
        (
            TABLE + "evaluate_every_epochs: null\nearly_stopping: 2\n",
            "job.yaml:8: early_stopping",
            "needs evaluations",
        ),
        (
            TABLE + "evaluate_every_epochs: 1\nevaluate_every_steps: 1\n",
            "job.yaml:8: evaluate_every_steps",
            "Keep one",
        ),
        (TABLE + "epochs: 3\n", "job.yaml:7", "given twice"),
        (TABLE + "ignore: &x [a]\n", "job.yaml:7", "anchors"),
        (TABLE + "ignore: !!python/object:os.system []\n", "job.yaml:7", "tags"),
        (TABLE + "seed: 99999999999999999999999\n", "job.yaml:7: seed", "whole number"),
        (TABLE + "hidden: " + "[" * 5000 + "]" * 5000 + "\n", "job.yaml", "nested"),
        (TABLE + 'ignore: ["\\ud800"]\n', "job.yaml:7", "half a character"),
        (TABLE + '"\\ud800": 1\n', "job.yaml:7", "half a character"),
        ("kind: \ud800\n", "job.yaml", "not YAML"),
        ("#" * 70_000, "job.yaml", "more than"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_line_and_the_key_and_what_was_expected(text: str, where: str, said: str) -> None:
    error = refusal(text)
    assert error.where == where
    assert said in str(error)


def test_the_file_is_named_as_the_caller_names_it() -> None:
    with pytest.raises(JobError, match=r"^jobs/a/job\.yaml: "):
        parse_job("", "jobs/a/job.yaml")


def test_an_alias_bomb_costs_nothing() -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 8)}]\n" for n in range(20)
    )
    with pytest.raises(PlainYamlError, match="aliases"):
        read_mapping(bomb)


@given(st.text())
def test_any_text_is_a_job_or_a_job_error(text: str) -> None:
    try:
        assert isinstance(parse_job(text), JobSpec)
    except JobError as error:
        assert error.where.startswith("job.yaml")


PIECES = st.sampled_from(
    [f"{key}: " for key in ("kind", *job_yaml._RULES)]
    + ["table", "python", "classification", "\n", "  ", "- ", "[", "]", "{", "}", ":", ",", "'", '"']
    + ["&a ", "*a", "!!int ", "!!binary ", "| ", ">", "#", "? ", "%YAML 9", "---\n", "...\n"]
    + ["1", "-1", "1e5", "1.", "null", "true", "~", "\t", "\\U99999999", "<<: ", "2020-13-45"]
)


@given(st.lists(PIECES, max_size=40))
def test_yaml_like_garbage_is_a_job_or_a_job_error(pieces: list[str]) -> None:
    try:
        parse_job(TABLE + "".join(pieces))
        parse_job("".join(pieces))
    except JobError:
        pass


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)


@given(st.sampled_from(sorted(job_yaml._RULES)), VALUES)
def test_any_value_under_any_key_is_taken_or_refused_by_that_key(key: str, value: object) -> None:
    base = TABLE if key not in ("file",) else PYTHON
    lines = [line for line in base.splitlines() if not line.startswith(key + ":")]
    text = "\n".join([*lines, f"{key}: {json.dumps(value)}"])
    try:
        parse_job(text)
    except JobError as error:
        allowed = (key, "epochs", "not YAML", "half a character")
        assert any(said in str(error) for said in allowed)


@given(st.integers(-(10**12), 10**12), st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_come_back_as_they_were_written(whole: int, real: float) -> None:
    entries = read_mapping(f"a: {whole}\nb: {real!r}\nc: '{whole}'\n")
    assert entries["a"].value == whole
    assert entries["b"].value == real
    assert entries["c"].value == str(whole)


def test_the_manual_lists_every_key() -> None:
    manual = (Path(__file__).parents[3] / "docs" / "JOBS.md").read_text(encoding="utf-8")
    missing = [key for key in ("kind", *job_yaml._RULES) if f"| `{key}` " not in manual]
    assert missing == ["steps"]  # stands in the line of epochs
    assert "`epochs` or `steps`" in manual
