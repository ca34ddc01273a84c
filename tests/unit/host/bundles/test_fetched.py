"""Only what this node fetched is ever removed, and of it the job's own files alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from daisychain.host.bundles.fetched import FetchedCopies
from daisychain.host.bundles.staging import Staging
from daisychain.host.job_listing import Digests
from support.bundles import chunk_of, manifest_of

FILES = {"job.yaml": b"kind: table\n", "data/a/b.csv": b"x" * 9000, "data/c.csv": b"y"}
MANIFEST = manifest_of(FILES)


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    (tmp_path / "jobs").mkdir()
    return tmp_path / "jobs"


def record(jobs: Path) -> FetchedCopies:
    return FetchedCopies(jobs.parent / "fetched.json", jobs)


def fetch(jobs: Path, name: str) -> Path:
    staging, copies = Staging(jobs.parent / "incoming", MANIFEST), record(jobs)
    for place in staging.missing():
        staging.put(*place, chunk_of(FILES, *place))
    return staging.place(
        jobs, name, about_to=lambda facts: copies.about_to_place(name, MANIFEST.digest, facts, 5.0)
    )


def test_a_fetched_copy_is_known_after_a_restart_and_goes_whole(jobs: Path) -> None:
    placed = fetch(jobs, "digits")
    (copy,) = record(jobs).present()
    assert (copy.name, copy.digest, copy.placed_at) == ("digits", MANIFEST.digest, 5.0)
    assert 9000 <= copy.takes_bytes <= 1 << 16
    copies = record(jobs)
    assert copies.remove(copy, Digests(10), wall=0.0)
    assert not placed.exists()
    assert copies.present() == record(jobs).present() == ()


def test_a_result_and_what_a_person_put_there_stay(jobs: Path) -> None:
    placed = fetch(jobs, "digits")
    (placed / "result").mkdir()
    (placed / "result" / "model.safetensors").write_text("model")
    (placed / "data" / ".notes").write_text("mine")
    copies = record(jobs)
    (copy,) = copies.present()
    assert copies.remove(copy, Digests(10), wall=0.0)
    left = sorted(path.relative_to(placed).as_posix() for path in placed.rglob("*") if path.is_file())
    assert left == ["data/.notes", "result/model.safetensors"]


def test_an_edited_copy_is_the_persons_own(jobs: Path) -> None:
    placed = fetch(jobs, "digits")
    (placed / "data" / "c.csv").write_text("edited")
    copies = record(jobs)
    (copy,) = copies.present()
    assert not copies.remove(copy, Digests(10), wall=0.0)
    assert (placed / "job.yaml").exists()
    assert copies.present() == ()


def test_a_folder_that_was_dropped_here_is_no_copy(jobs: Path) -> None:
    placed = fetch(jobs, "digits")
    shutil.copytree(placed, jobs / "mine")
    shutil.copytree(placed, jobs / "aside")
    shutil.rmtree(placed)
    (jobs / "aside").rename(placed)  # the same job and name, another folder
    assert record(jobs).present() == ()
    placed.rename(jobs / "renamed")
    assert record(jobs).present() == ()


def test_a_copy_that_was_moved_away_is_the_persons_own(jobs: Path) -> None:
    fetch(jobs, "digits").rename(jobs / "kept")
    assert record(jobs).present() == ()


def test_a_crash_before_the_rename_makes_no_copy_of_what_is_dropped_later(jobs: Path) -> None:
    staging = Staging(jobs.parent / "incoming", MANIFEST)
    record(jobs).about_to_place("digits", MANIFEST.digest, staging.folder.stat(), 5.0)
    (jobs / "digits").mkdir()
    (jobs / "digits" / "job.yaml").write_bytes(b"dropped")
    assert record(jobs).present() == ()


@pytest.mark.parametrize("damage", ["{", '{"version": 1}', '{"version": 1, "copies": [1]}', "\x80"])
def test_a_damaged_record_removes_nothing(jobs: Path, damage: str) -> None:
    fetch(jobs, "digits")
    (jobs.parent / "fetched.json").write_text(damage, encoding="latin-1")
    copies = record(jobs)
    assert copies.present() == ()
    assert "no longer removed" in copies.problem
