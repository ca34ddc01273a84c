"""A result is published whole, once a run, whoever else publishes at the same moment."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import msgspec
import pytest

from daisychain.errors import StorageError
from daisychain.trainer.engine.timeline import Timeline
from daisychain.trainer.record import results
from daisychain.trainer.record.audit import audit
from daisychain.trainer.record.journal import Evaluation
from daisychain.trainer.record.results import Summary, publish, read_summary, write_summary

ONE_STEP = Timeline(steps=1, steps_per_epoch=1, samples=4, batch=4, interval=0, evaluates=False)


def summary(run_id: str) -> Summary:
    return Summary(
        job="digits",
        run_id=run_id,
        kind="table",
        started_at=1.0,
        finished_at=2.0,
        steps=1,
        epochs=1.0,
        samples=4,
        samples_per_s=4.0,
        parameters=10,
        train_loss=0.5,
        evaluation=Evaluation(0.5, {"accuracy": 1.0}),
        model_step=1,
        stopped_early=False,
        reproducible=False,
        rounds_alike=None,
        repairs=0,
        audit=audit([], ONE_STEP),
        notes=("a note",),
        torch="2",
        daisychain="0",
    )


def run_folder(parent: Path, run_id: str, content: str = "") -> Path:
    folder = parent / f"run-{run_id}-{content}"
    folder.mkdir()
    write_summary(folder, summary(run_id))
    for name in ("model.safetensors", "metrics.jsonl", "train.log"):
        (folder / name).write_text(f"{run_id}{content} {name}")
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.name != "summary.json"}


@pytest.fixture
def result(tmp_path: Path) -> Path:
    job = tmp_path / "digits"
    job.mkdir()
    return job / "result"


def test_a_summary_comes_back(tmp_path: Path) -> None:
    write_summary(tmp_path, summary("r-1"))
    assert read_summary(tmp_path) == summary("r-1")
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


def test_no_summary_and_a_damaged_one_are_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"summary\.json cannot be read"):
        read_summary(tmp_path)
    (tmp_path / "summary.json").write_text("{")
    with pytest.raises(StorageError, match="no summary"):
        read_summary(tmp_path)


def test_a_result_holds_the_runs_files(tmp_path: Path, result: Path) -> None:
    assert publish(run_folder(tmp_path, "r-1"), result, "r-1")
    assert contents(result) == {
        name: f"r-1 {name}" for name in ("model.safetensors", "metrics.jsonl", "train.log")
    }
    assert read_summary(result).run_id == "r-1"


def test_another_runs_result_is_replaced_as_a_whole(tmp_path: Path, result: Path) -> None:
    publish(run_folder(tmp_path, "r-1"), result, "r-1")
    (result / "of-the-older").write_text("x")
    assert publish(run_folder(tmp_path, "r-2"), result, "r-2")
    assert set(contents(result)) == {"model.safetensors", "metrics.jsonl", "train.log"}
    assert read_summary(result).run_id == "r-2"
    assert [path.name for path in result.parent.iterdir()] == ["result"]


def test_a_result_of_the_same_run_is_left(tmp_path: Path, result: Path) -> None:
    publish(run_folder(tmp_path, "r-1", "first"), result, "r-1")
    assert not publish(run_folder(tmp_path, "r-1", "second"), result, "r-1")
    assert contents(result)["model.safetensors"].startswith("r-1first")


def test_what_stands_in_the_place_and_is_no_result_is_replaced(tmp_path: Path, result: Path) -> None:
    result.mkdir()
    (result / "summary.json").write_text("garbage")
    assert publish(run_folder(tmp_path, "r-1"), result, "r-1")
    assert read_summary(result).run_id == "r-1"


def test_a_missing_model_is_named_and_the_older_result_stays(tmp_path: Path, result: Path) -> None:
    publish(run_folder(tmp_path, "r-1"), result, "r-1")
    broken = run_folder(tmp_path, "r-2")
    (broken / "model.safetensors").unlink()
    with pytest.raises(StorageError, match=r"model\.safetensors"):
        publish(broken, result, "r-2")
    assert read_summary(result).run_id == "r-1"
    assert [path.name for path in result.parent.iterdir()] == ["result"]


def test_a_rename_that_fails_puts_the_older_result_back(
    tmp_path: Path, result: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(run_folder(tmp_path, "r-1"), result, "r-1")
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if self.name.startswith(".result-new-"):
            raise OSError(28, "No space left on device", str(self))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(StorageError, match="No space left"):
        publish(run_folder(tmp_path, "r-2"), result, "r-2")
    assert read_summary(result).run_id == "r-1"


def test_nodes_that_share_the_folder_leave_one_whole_result(tmp_path: Path, result: Path) -> None:
    publish(run_folder(tmp_path, "r-0"), result, "r-0")
    folders = [run_folder(tmp_path, "r-1", f"node{number}") for number in range(6)]
    done: list[bool] = []
    threads = [
        threading.Thread(target=lambda folder=folder: done.append(publish(folder, result, "r-1")))
        for folder in folders
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(done) == 6
    assert any(done)
    found = contents(result)
    assert len({text.split()[0] for text in found.values()}) == 1
    assert len(found) == 3
    assert [path.name for path in result.parent.iterdir()] == ["result"]


def test_what_a_dead_node_left_half_done_is_removed(tmp_path: Path, result: Path) -> None:
    old, fresh = result.parent / ".result-new-dead", result.parent / ".result-old-alive"
    for folder in (old, fresh):
        folder.mkdir()
    os.utime(old, (1.0, 1.0))
    publish(run_folder(tmp_path, "r-1"), result, "r-1")
    assert not old.exists()
    assert fresh.exists()


def test_the_summary_is_plain_json_with_the_audit(tmp_path: Path) -> None:
    write_summary(tmp_path, summary("r-1"))
    found = msgspec.json.decode((tmp_path / results.SUMMARY_FILE).read_bytes())
    assert found["audit"]["samples_lost"] == 4
    assert found["version"] == 1
