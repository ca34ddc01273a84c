"""What is a job, what is not yet one, and what is one that cannot be trained."""

from __future__ import annotations

import json
import os
import shutil
import stat
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest

from daisychain.core.jobs import JobState
from daisychain.core.manifest import ManifestLimits, check_manifest
from daisychain.errors import BundleError, StorageError
from daisychain.host.job_folder import FoundJob, JobFolder, JobFolderSettings
from daisychain.host.job_listing import BESIDES_MAX, list_job
from daisychain.host.ledger import Ledger, run_id_of

JOB = "kind: table\ndata: data.csv\ntarget: y\ntask: regression\nglobal_batch_size: 8\nepochs: 1\n"
SETTINGS = JobFolderSettings(settle_s=1.0, bundle=ManifestLimits(files_max=50, bytes_max=10_000))


class Watched:
    """A jobs folder and a clock."""

    def __init__(self, path: Path, settings: JobFolderSettings = SETTINGS) -> None:
        self.path = path
        self.folder = JobFolder(path, settings)
        self.now = 0.0
        self.wall = path.stat().st_mtime + 1.0

    def scan(self, after_s: float = 0.0) -> dict[str, FoundJob]:
        self.now += after_s
        self.wall += after_s
        return {job.name: job for job in self.folder.scan(self.now, self.wall)}

    def rested(self) -> dict[str, FoundJob]:
        self.scan()
        return self.scan(after_s=1.5)


def write_job(jobs: Path, name: str = "digits") -> Path:
    folder = jobs / name
    folder.mkdir()
    (folder / "job.yaml").write_text(JOB)
    (folder / "data.csv").write_text("x,y\n1,2\n")
    return folder


@pytest.fixture
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    return Ledger(tmp_path_factory.mktemp("state") / "ledger.json")


def test_a_folder_that_appears_whole_need_not_rest_and_only_that_one(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    folder, other = write_job(tmp_path), write_job(tmp_path, "other")
    watched.folder.trust(folder.stat().st_ino)
    assert list(watched.scan()) == ["digits"]
    (folder / "data.csv").write_text("x,y\n3,4\n")
    assert watched.scan() == {}, "edited, it has to rest like any other"
    shutil.rmtree(folder)
    shutil.copytree(other, tmp_path / "third")
    assert "third" not in watched.scan(), "an inode that is used again is trusted no more"


def test_a_job_at_rest_is_found_and_queued(tmp_path: Path, ledger: Ledger) -> None:
    write_job(tmp_path)
    job = Watched(tmp_path).rested()["digits"]
    card = job.card(ledger)
    assert job.problem == ""
    assert card.state is JobState.QUEUED
    assert card.run_id == f"{job.digest[:16]}-1"
    assert len(job.digest) == 64


def test_a_folder_without_job_yaml_is_no_job(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "README").write_text("")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "job.yaml").write_text(JOB)
    (tmp_path / "odd" / "job.yaml").mkdir(parents=True)
    assert Watched(tmp_path).rested() == {}


def test_a_folder_still_being_copied_is_not_yet_a_job(tmp_path: Path) -> None:
    folder = write_job(tmp_path)
    watched = Watched(tmp_path)
    assert watched.scan() == {}
    (folder / "data.csv").write_text("x,y\n1,2\n3,4\n")
    assert watched.scan(after_s=0.9) == {}
    assert watched.scan(after_s=0.9) == {}
    assert watched.scan(after_s=0.2).keys() == {"digits"}


@pytest.mark.parametrize("name", ["digits.part", "digits.PART"])
def test_a_folder_in_part_is_a_job_once_it_is_renamed(tmp_path: Path, name: str) -> None:
    folder = write_job(tmp_path, name)
    watched = Watched(tmp_path)
    watched.wall += 3600
    assert watched.rested() == {}
    folder.rename(tmp_path / "digits")
    assert watched.rested().keys() == {"digits"}


def test_a_folder_that_says_it_is_ready_is_a_job_at_once(tmp_path: Path) -> None:
    folder = write_job(tmp_path)
    watched = Watched(tmp_path)
    assert watched.scan() == {}
    (folder / ".ready").write_text("")
    digest = watched.scan()["digits"].digest
    (folder / ".ready").unlink()
    assert watched.scan(after_s=1.5)["digits"].digest == digest  # it is no part of the job


def test_a_folder_long_at_rest_is_a_job_at_first_sight(tmp_path: Path) -> None:
    write_job(tmp_path)
    watched = Watched(tmp_path)
    watched.wall += 60
    assert watched.scan().keys() == {"digits"}


def test_the_digest_is_of_names_and_contents_alone(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    folder = write_job(one)
    shutil.copytree(folder, two / "renamed")
    os.utime(two / "renamed" / "data.csv", (5, 5))
    first = Watched(one).rested()["digits"]
    assert Watched(two).rested()["renamed"].digest == first.digest
    (two / "renamed" / "data.csv").rename(two / "renamed" / "date.csv")
    assert Watched(two).rested()["renamed"].digest != first.digest


def test_what_a_run_writes_and_hidden_files_do_not_change_the_digest(tmp_path: Path) -> None:
    folder = write_job(tmp_path)
    watched = Watched(tmp_path)
    digest = watched.rested()["digits"].digest
    for name in ("result", "__pycache__", ".git"):
        (folder / name).mkdir()
        (folder / name / "file").write_text("x")
    (folder / ".DS_Store").write_text("x")
    assert watched.rested()["digits"].digest == digest
    (folder / "sub").mkdir()
    (folder / "sub" / "result").mkdir()
    (folder / "sub" / "result" / "part.csv").write_text("x")
    assert watched.rested()["digits"].digest != digest


def test_a_change_that_keeps_size_and_time_but_is_a_new_file_is_seen(tmp_path: Path) -> None:
    folder = write_job(tmp_path)
    watched = Watched(tmp_path)
    watched.wall += 3600
    digest = watched.rested()["digits"].digest
    stamp = (folder / "data.csv").stat()
    (folder / "new").write_text("x,y\n9,9\n")
    os.utime(folder / "new", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    (folder / "new").replace(folder / "data.csv")
    assert watched.rested()["digits"].digest != digest


def test_the_manifest_of_a_found_job_is_told_until_it_changes(tmp_path: Path) -> None:
    folder = write_job(tmp_path)
    watched = Watched(tmp_path)
    job = watched.rested()["digits"]
    manifest = watched.folder.manifest(job, watched.wall)
    assert manifest.digest == job.digest
    assert [file.name for file in manifest.files] == ["data.csv", "job.yaml"]
    check_manifest(manifest)
    (folder / "data.csv").write_text("x,y\n9,9\n")
    with pytest.raises(BundleError, match="has changed"):
        watched.folder.manifest(job, watched.wall)
    shutil.rmtree(folder)
    with pytest.raises(BundleError, match="cannot be read"):
        watched.folder.manifest(job, watched.wall)


def test_a_file_that_changes_while_it_is_read_is_read_again_at_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_job(tmp_path)
    read, changes = os.pread, [b"x,y\n5,6\n"]

    def meddled(file: int, size: int, at: int) -> bytes:
        data = read(file, size, at)
        if changes and data.startswith(b"x,y"):
            (folder / "data.csv").write_bytes(changes.pop())
        return data

    monkeypatch.setattr(os, "pread", meddled)
    watched = Watched(tmp_path)
    assert watched.rested() == {}
    assert changes == []
    job = watched.rested()["digits"]
    assert watched.folder.manifest(job, watched.wall).digest == job.digest


def test_of_a_folder_with_countless_entries_few_are_looked_at(tmp_path: Path) -> None:
    folder = write_job(tmp_path)
    for number in range(BESIDES_MAX):
        (folder / f".hidden-{number}").write_text("")
    assert list_job(folder, 2).problem == ""
    (folder / ".one-more").write_text("")
    listed = list_job(folder, 50)
    assert "more than 50 files" in listed.problem


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("kind: table\n", ("job.yaml",)),
        ("{", ("job.yaml",)),
        (JOB + "epoch: 3\n", ("job.yaml", "epoch")),
        (JOB.replace("data.csv", "dato.csv"), ("job.yaml", "data", "dato.csv")),
        ("x" * 70_000, ("job.yaml", "65536")),
    ],
)
def test_a_bad_job_yaml_is_a_failed_card_with_its_reason(
    tmp_path: Path, ledger: Ledger, text: str, names: tuple[str, ...]
) -> None:
    folder = write_job(tmp_path)
    (folder / "job.yaml").write_text(text)
    watched = Watched(tmp_path, replace(SETTINGS, bundle=ManifestLimits(bytes_max=1 << 20)))
    card = watched.rested()["digits"].card(ledger)
    assert card.state is JobState.FAILED
    assert all(name in card.reason for name in names), card.reason
    (folder / "job.yaml").write_text(JOB)
    assert watched.rested()["digits"].card(ledger).state is JobState.QUEUED


def test_bytes_that_are_no_text_are_a_failed_card(tmp_path: Path, ledger: Ledger) -> None:
    (write_job(tmp_path) / "job.yaml").write_bytes(b"kind: \xff\xfe")
    assert "UTF-8" in Watched(tmp_path).rested()["digits"].card(ledger).reason


def trap_pipe(folder: Path) -> None:
    os.mkfifo(folder / "pipe")


def trap_folder_link(folder: Path) -> None:
    (folder / "loop").symlink_to(folder)


def trap_dangling_link(folder: Path) -> None:
    (folder / "gone").symlink_to(folder / "nowhere")


def trap_many_files(folder: Path) -> None:
    for number in range(60):
        (folder / f"{number}").write_text("")


def trap_many_bytes(folder: Path) -> None:
    with (folder / "huge").open("wb") as file:
        file.truncate(1 << 40)


def trap_name(folder: Path) -> None:
    (folder / os.fsdecode(b"bad-\xff-name")).write_text("x")


def trap_link_out(folder: Path) -> None:
    (folder / "passwords").symlink_to("/etc/passwd")


def trap_socket(folder: Path) -> None:
    os.mknod(folder / "socket", stat.S_IFSOCK | 0o600)


def trap_device_name(folder: Path) -> None:
    (folder / "Con.csv").write_text("x")


def trap_case(folder: Path) -> None:
    (folder / "Data.csv").write_text("x")


def trap_folder_case(folder: Path) -> None:
    for name in ("a", "A"):
        (folder / name).mkdir()
        (folder / name / f"{'x' if name == 'a' else 'y'}.csv").write_text("x")


def trap_decomposed(folder: Path) -> None:
    (folder / unicodedata.normalize("NFD", "Zürich.csv")).write_text("x")


def trap_deep(folder: Path) -> None:
    deep = folder.joinpath(*["d"] * 40)
    deep.mkdir(parents=True)
    (deep / "x").write_text("x")


def trap_result_by_another_case(folder: Path) -> None:
    (folder / "RESULT").mkdir()
    (folder / "RESULT" / "model").write_text("x")


@pytest.mark.parametrize(
    ("trap", "says"),
    [
        (trap_pipe, "pipe is not a file"),
        (trap_folder_link, "loop is a link"),
        (trap_dangling_link, "gone is a link"),
        (trap_many_files, "more than 50 files"),
        (trap_many_bytes, "10000"),
        (trap_name, "UTF-8"),
        (trap_link_out, "passwords is a link"),
        (trap_socket, "socket is not a file"),
        (trap_device_name, "Con.csv: Windows takes Con.csv for a device. Rename it"),
        (trap_case, "data.csv: it and Data.csv are one name"),
        (trap_folder_case, "a: it and A are one name"),
        (trap_decomposed, "decomposed"),
        (trap_deep, "deep"),
        (trap_result_by_another_case, "puts its result"),
    ],
)
def test_what_cannot_be_part_of_a_job_fails_it_without_being_read(
    tmp_path: Path, ledger: Ledger, trap: object, says: str
) -> None:
    folder = write_job(tmp_path)
    assert callable(trap)
    trap(folder)
    write_job(tmp_path, "good")
    jobs = Watched(tmp_path).rested()
    card = jobs["digits"].card(ledger)
    assert card.state is JobState.FAILED
    assert says in card.reason
    assert jobs["good"].card(ledger).state is JobState.QUEUED


def test_a_result_of_this_very_job_means_finished(tmp_path: Path, ledger: Ledger) -> None:
    folder = write_job(tmp_path)
    watched = Watched(tmp_path)
    digest = watched.rested()["digits"].digest
    (folder / "result").mkdir()
    (folder / "result" / "summary.json").write_text(json.dumps({"run_id": run_id_of(digest, 2), "x": 1}))
    card = watched.rested()["digits"].card(ledger)
    assert (card.state, card.run_id) == (JobState.FINISHED, run_id_of(digest, 2))
    (folder / "data.csv").write_text("x,y\n5,6\n")
    assert watched.rested()["digits"].card(ledger).state is JobState.QUEUED


@pytest.mark.parametrize("summary", ["{", "[]", '{"run_id": 3}', '{"run_id": "deadbeef-1"}', "{}"])
def test_a_foreign_result_means_nothing(tmp_path: Path, ledger: Ledger, summary: str) -> None:
    folder = write_job(tmp_path)
    (folder / "result").mkdir()
    (folder / "result" / "summary.json").write_text(summary)
    assert Watched(tmp_path).rested()["digits"].card(ledger).state is JobState.QUEUED


def test_a_recorded_end_is_told_and_not_run_again(tmp_path: Path, ledger: Ledger) -> None:
    write_job(tmp_path)
    job = Watched(tmp_path).rested()["digits"]
    ended = replace(job.card(ledger), state=JobState.CANCELLED, reason="asked")
    ledger.record(ended)
    assert job.card(ledger) == ended


def test_a_later_submission_is_the_one_told(tmp_path: Path, ledger: Ledger) -> None:
    write_job(tmp_path)
    job = Watched(tmp_path).rested()["digits"]
    ledger.record(replace(job.card(ledger), state=JobState.FINISHED))
    again = replace(job.card(ledger), run_id=run_id_of(job.digest, 2), state=JobState.RUNNING)
    ledger.record(again)
    card = job.card(ledger)
    assert (card.run_id, card.state) == (again.run_id, JobState.QUEUED)


def test_a_job_removed_is_gone_and_no_folder_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    folder = write_job(jobs)
    watched = Watched(jobs)
    assert watched.rested().keys() == {"digits"}
    shutil.rmtree(folder)
    assert watched.scan() == {}
    jobs.rmdir()
    with pytest.raises(StorageError, match="--jobs-folder"):
        watched.scan()


def test_the_jobs_folder_is_bounded(tmp_path: Path) -> None:
    for number in range(5):
        write_job(tmp_path, f"job-{number}")
    assert len(Watched(tmp_path, replace(SETTINGS, jobs_max=3)).rested()) == 3
