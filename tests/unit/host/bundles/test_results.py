"""A result folder is told as it came to be; what a person or a job's code put there is not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from daisychain.core.ids import RunId
from daisychain.core.manifest import Manifest
from daisychain.errors import BundleError
from daisychain.host.bundles.reading import BundlePlace, read_chunk
from daisychain.host.bundles.results import NOT_OURS, ResultBook
from daisychain.host.job_listing import Digests, list_job

WALL = 4e9
"""Long after every file was written: their time stamps are trusted."""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "jobs" / "digits"
    (folder / "result").mkdir(parents=True)
    (folder / "job.yaml").write_text("kind: table\n")
    (folder / "result" / "summary.json").write_text('{"run_id": "abcd-1"}')
    (folder / "result" / "model.safetensors").write_bytes(bytes(1000))
    return folder


def book(tmp_path: Path) -> ResultBook:
    return ResultBook(tmp_path / "results.json")


def job_digest(folder: Path) -> str:
    return Digests(100).manifest(folder, list_job(folder, 100), WALL).digest


def test_a_result_is_ours_as_it_came_and_a_persons_once_edited(tmp_path: Path, job: Path) -> None:
    found = book(tmp_path).look(job, WALL)
    assert found is not None and found.ours and found.run_id == RunId("abcd-1")
    (job / "result" / "notes.txt").write_text("mine")
    edited = book(tmp_path).look(job, WALL)  # after a restart, too
    assert edited is not None and not edited.ours
    (job / "result" / "summary.json").write_text('{"run_id": "abcd-2"}')  # a new run replaced it
    again = book(tmp_path).look(job, WALL)
    assert again is not None and again.ours and again.run_id == RunId("abcd-2")


def test_a_folder_that_is_no_result_is_a_persons(tmp_path: Path, job: Path) -> None:
    (job / "result" / "summary.json").unlink()
    assert book(tmp_path).look(job, WALL) == NOT_OURS


def test_a_result_is_no_part_of_its_job(job: Path) -> None:
    before = job_digest(job)
    (job / "result" / "model.safetensors").write_bytes(b"another")
    (job / ".result-old-0123456789abcdef").mkdir()
    assert job_digest(job) == before


def link_file(result: Path, outside: Path) -> None:
    (result / "key").symlink_to(outside / "secret")


def link_folder(result: Path, outside: Path) -> None:
    (result / "more").symlink_to(outside)


def link_summary(result: Path, outside: Path) -> None:
    (result / "summary.json").unlink()
    (result / "summary.json").symlink_to(outside / "summary.json")


def link_whole(result: Path, outside: Path) -> None:
    result.rename(result.parent / "was")
    result.symlink_to(outside)


def pipe(result: Path, outside: Path) -> None:
    os.mkfifo(result / "pipe")


@pytest.mark.parametrize("plant", [link_file, link_folder, link_summary, link_whole, pipe])
def test_what_a_job_planted_is_neither_told_nor_given(
    tmp_path: Path, job: Path, plant: Callable[[Path, Path], None]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("the key")
    (outside / "summary.json").write_text('{"run_id": "abcd-1"}')
    plant(job / "result", outside)
    known = book(tmp_path)
    assert known.look(job, WALL) == NOT_OURS
    with pytest.raises(BundleError):
        known.manifest(job, WALL)


def test_a_link_planted_after_the_manifest_was_made_gives_nothing(tmp_path: Path, job: Path) -> None:
    """Even with the very bytes behind it: no way leads out of the folder."""
    manifest: Manifest = book(tmp_path).manifest(job, WALL)
    result = job / "result"
    link_whole(result, job / "was")
    for chunk in manifest.chunks():
        with pytest.raises(BundleError, match="cannot be read any more"):
            read_chunk(BundlePlace(job, "result"), manifest, *chunk)


def test_a_damaged_record_is_told_and_set_aside(tmp_path: Path, job: Path) -> None:
    (tmp_path / "results.json").write_bytes(b"\xff{")
    known = book(tmp_path)
    assert "record of results was damaged" in known.problem
    found = known.look(job, WALL)
    assert found is not None and found.ours
