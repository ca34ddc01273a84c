"""The folders of runs: bounded in number, what can still be used kept longest, one process each."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from daisychain.errors import StorageError
from daisychain.host.run_folders import CLAIMS_MAX, RUNS_KEPT, RunFolders


def test_old_run_folders_are_removed_newest_kept(tmp_path: Path) -> None:
    runs = RunFolders(tmp_path)
    for number in range(RUNS_KEPT + 5):
        made = runs.folder(f"run-{number:03}")
        os.utime(made, (number, number))
    kept = sorted(entry.name for entry in tmp_path.iterdir())
    assert kept == [f"run-{number:03}" for number in range(5, RUNS_KEPT + 5)]


def test_a_run_that_can_go_on_is_kept_before_newer_ones_that_cannot(tmp_path: Path) -> None:
    runs = RunFolders(tmp_path)
    checkpoint = runs.folder("goes-on") / "checkpoints" / "000000000007.state"
    checkpoint.parent.mkdir()
    checkpoint.touch()
    os.utime(runs.folder("goes-on"), (0, 0))
    for number in range(RUNS_KEPT + 5):
        runs.folder(f"run-{number:03}")
    assert checkpoint.exists()
    assert len(list(tmp_path.iterdir())) == RUNS_KEPT


def test_checkpoints_are_forgotten_and_the_rest_of_a_run_kept(tmp_path: Path) -> None:
    runs = RunFolders(tmp_path)
    folder = runs.folder("r-1")
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "000000000007.state").touch()
    (folder / "train.log").write_text("so far")
    runs.forget_checkpoints("r-1")
    runs.forget_checkpoints("never there")
    assert [entry.name for entry in folder.iterdir()] == ["train.log"]
    assert runs.log("r-1").read_text() == "so far"


def test_a_claimed_folder_is_the_same_each_time_and_another_s_while_it_is_held(tmp_path: Path) -> None:
    runs = RunFolders(tmp_path)
    with runs.claimed("r-1-alone") as first, runs.claimed("r-1-alone") as second:
        assert (first.name, second.name) == ("r-1-alone", "r-1-alone-2")
    with runs.claimed("r-1-alone") as again:
        assert again == first


def test_too_many_claims_are_refused_with_the_way_out(tmp_path: Path) -> None:
    runs = RunFolders(tmp_path)
    claims = [runs.claimed("r-1-alone") for _ in range(CLAIMS_MAX)]
    try:
        for claim in claims:
            claim.__enter__()
        with pytest.raises(StorageError, match="--state-folder"), runs.claimed("r-1-alone"):
            pass
    finally:
        for claim in claims:
            claim.__exit__(None, None, None)
