"""A bundle comes in chunk by chunk, survives a restart, and is placed whole or not at all."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from daisychain.core.manifest import CHUNK_BYTES
from daisychain.errors import BundleError, StorageError
from daisychain.host.bundles.staging import BESIDE, Staging, clean_incoming, sweep_moved_away
from daisychain.host.job_listing import Digests, list_job
from support.bundles import chunk_of, manifest_of

FILES = {
    "job.yaml": b"kind: table\n",
    "data/big.bin": bytes(range(256)) * (CHUNK_BYTES // 128) + b"tail",
    "data/zeros.bin": bytes(CHUNK_BYTES + 5),
    "data/deeper/empty.csv": b"",
    "Zürich.csv": b"x,y\n",
}
MANIFEST = manifest_of(FILES)


class Place:
    """A state folder's incoming/ and a jobs folder."""

    def __init__(self, path: Path) -> None:
        self.incoming = path / "state" / "incoming"
        self.jobs = path / "jobs"
        self.jobs.mkdir()
        self.incoming.parent.mkdir()

    def staging(self) -> Staging:
        return Staging(self.incoming, MANIFEST)

    def whole(self) -> Staging:
        staging = self.staging()
        fill(staging)
        return staging


def fill(staging: Staging) -> None:
    for file, chunk in staging.missing():
        staging.put(file, chunk, chunk_of(FILES, file, chunk))


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.fixture
def at(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_what_is_placed_is_the_very_bundle(at: Place) -> None:
    staging = at.staging()
    assert staging.missing() == tuple(MANIFEST.chunks())
    assert staging.present_bytes == 0
    fill(staging)
    assert staging.present_bytes == MANIFEST.size_bytes
    placed = staging.place(at.jobs, "digits")
    assert placed == at.jobs / "digits"
    assert contents(placed) == FILES
    assert Digests(10).manifest(placed, list_job(placed, 100), wall=0.0).digest == MANIFEST.digest
    assert list(at.incoming.iterdir()) == []
    assert [path.name for path in at.jobs.iterdir()] == ["digits"]


def test_modes_are_plain_whatever_the_umask(at: Place) -> None:
    before = os.umask(0o077)
    try:
        placed = at.whole().place(at.jobs, "digits")
    finally:
        os.umask(before)
    for path in [placed, *placed.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644), path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_is_placed_is_in_the_name_of_the_jobs_folders_owner(at: Place) -> None:
    os.chown(at.jobs, 1234, 2345)
    placed = at.whole().place(at.jobs, "digits")
    for path in [placed, *placed.rglob("*")]:
        assert (path.stat().st_uid, path.stat().st_gid) == (1234, 2345), path


def test_a_chunk_with_other_contents_is_refused_and_still_missing(at: Place) -> None:
    staging = at.staging()
    right = chunk_of(FILES, 1, 0)
    for wrong in (right[:-1] + b"!", right[:-1], right + b"!", b""):
        with pytest.raises(BundleError, match="chunk 0"):
            staging.put(1, 0, wrong)
    assert (1, 0) in staging.missing()
    for beyond in ((0, 99), (99, 0), (-1, 0), (0, -1)):
        with pytest.raises(IndexError):
            staging.put(*beyond, b"")


def test_what_was_verified_is_not_wanted_again_after_a_restart(at: Place) -> None:
    staging = at.staging()
    wanted = staging.missing()
    for file, chunk in wanted[::2]:
        staging.put(file, chunk, chunk_of(FILES, file, chunk))
    again = at.staging()
    assert again.missing() == staging.missing() == wanted[1::2]
    fill(again)
    assert contents(again.place(at.jobs, "digits")) == FILES


def test_what_was_damaged_meanwhile_is_wanted_again(at: Place) -> None:
    folder = at.whole().folder
    os.truncate(folder / "data" / "big.bin", CHUNK_BYTES + 7)
    with (folder / "Zürich.csv").open("r+b") as file:
        file.write(b"!")
    again = at.staging()
    names = [MANIFEST.files[file].name for file, _ in again.missing()]
    assert names == ["Zürich.csv", "data/big.bin", "data/big.bin"]
    fill(again)
    assert contents(again.place(at.jobs, "digits")) == FILES


def test_a_bundle_with_missing_chunks_is_not_placed(at: Place) -> None:
    staging = at.staging()
    with pytest.raises(BundleError, match="missing"):
        staging.place(at.jobs, "digits")
    assert list(at.jobs.iterdir()) == []


def test_a_bad_manifest_or_name_gets_nowhere(at: Place) -> None:
    with pytest.raises(BundleError, match="part by part"):
        Staging(at.incoming, manifest_of({"../../x": b""}))
    assert not at.incoming.exists()
    for name in ("../x", "/x", ".x", "con", "a/b", ""):
        with pytest.raises(BundleError):
            at.whole().place(at.jobs, name)
    assert list(at.jobs.iterdir()) == []


def taken_by_a_folder(target: Path) -> None:
    target.mkdir()
    (target / "job.yaml").write_text("mine")


def taken_by_an_empty_folder(target: Path) -> None:
    target.mkdir()


def taken_by_a_file(target: Path) -> None:
    target.write_text("mine")


def taken_by_a_link(target: Path) -> None:
    (target.parent.parent / "elsewhere").mkdir()
    target.symlink_to(target.parent.parent / "elsewhere")


def taken_by_a_link_to_nothing(target: Path) -> None:
    target.symlink_to("nowhere")


@pytest.mark.parametrize(
    "take",
    [
        taken_by_a_folder,
        taken_by_an_empty_folder,
        taken_by_a_file,
        taken_by_a_link,
        taken_by_a_link_to_nothing,
    ],
)
def test_a_name_that_is_taken_is_left_alone(at: Place, take: Callable[[Path], None]) -> None:
    target = at.jobs / "digits"
    take(target)
    before = target.lstat()
    staging = at.whole()
    with pytest.raises(BundleError, match="there already"):
        staging.place(at.jobs, "digits")
    assert target.lstat().st_ino == before.st_ino
    assert staging.missing() == ()
    assert contents(staging.place(at.jobs, "digits-2")) == FILES


def test_the_same_bundle_is_placed_once(at: Place) -> None:
    placed = at.whole().place(at.jobs, "digits")
    inode = placed.stat().st_ino
    assert at.whole().place(at.jobs, "digits") == placed
    assert placed.stat().st_ino == inode
    assert list(at.incoming.iterdir()) == []
    (placed / "data" / "big.bin").write_bytes(b"edited")
    with pytest.raises(BundleError, match="there already"):
        at.whole().place(at.jobs, "digits")


def test_an_older_one_is_replaced_where_that_is_asked_for(at: Place) -> None:
    taken_by_a_folder(at.jobs / "result")
    placed = at.whole().place(at.jobs, "result", replace=True)
    assert contents(placed) == FILES
    assert [path.name for path in at.jobs.iterdir()] == ["result"]


def plant_link(folder: Path, outside: Path) -> None:
    shutil.rmtree(folder / "data")
    (folder / "data").symlink_to(outside)


def plant_whole_link(folder: Path, outside: Path) -> None:
    shutil.rmtree(folder)
    folder.symlink_to(outside)


def plant_incoming_link(folder: Path, outside: Path) -> None:
    shutil.rmtree(folder.parent)
    (outside / folder.name).mkdir()
    folder.parent.symlink_to(outside)


def plant_file_link(folder: Path, outside: Path) -> None:
    (folder / "Zürich.csv").unlink()
    (folder / "Zürich.csv").symlink_to(outside / "big.bin")


def plant_second_name(folder: Path, outside: Path) -> None:
    (folder / "Zürich.csv").unlink()
    (folder / "Zürich.csv").hardlink_to(outside / "big.bin")


def plant_pipe(folder: Path, outside: Path) -> None:
    (folder / "job.yaml").unlink()
    os.mkfifo(folder / "job.yaml")


def plant_folder(folder: Path, outside: Path) -> None:
    (folder / "job.yaml").unlink()
    (folder / "job.yaml" / "x").mkdir(parents=True)


def plant_more(folder: Path, outside: Path) -> None:
    (folder / "more" / "x").mkdir(parents=True)
    (folder / "data" / "more.bin").write_text("x")
    (folder / "out").symlink_to(outside)
    (folder / ".hidden").write_text("x")


def plant_modes(folder: Path, outside: Path) -> None:
    (folder / "job.yaml").chmod(0o6755)
    (folder / "data").chmod(0o2777)


def plant_length(folder: Path, outside: Path) -> None:
    with (folder / "job.yaml").open("ab") as file:
        file.write(b"more: true\n")


def plant_contents(folder: Path, outside: Path) -> None:
    with (folder / "job.yaml").open("r+b") as file:
        file.write(b"evil")
    os.utime(folder / "job.yaml", (1, 1))  # it may be the same tick of the kernel's clock


PLANTS = [
    plant_link,
    plant_whole_link,
    plant_incoming_link,
    plant_file_link,
    plant_second_name,
    plant_pipe,
    plant_folder,
    plant_more,
    plant_modes,
    plant_length,
    plant_contents,
]


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("restarted", [False, True])
def test_what_somebody_plants_is_never_followed_nor_placed(
    at: Place, plant: Callable[[Path, Path], None], restarted: bool
) -> None:
    outside = at.jobs.parent / "outside"
    outside.mkdir()
    (outside / "big.bin").write_bytes(b"not ours")
    staging = at.whole()
    plant(staging.folder, outside)
    if restarted:
        staging = at.staging()
    for _ in range(len(FILES)):
        fill(staging)
        try:
            placed = staging.place(at.jobs, "digits")
        except BundleError:
            continue  # told, and fetched again
        break
    else:
        pytest.fail("it was never placed")
    assert contents(outside) == {"big.bin": b"not ours"}
    assert contents(placed) == FILES
    assert {path for path in placed.rglob("*") if path.is_symlink()} == set()
    for path in [placed, *placed.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644), path


@pytest.mark.parametrize("plant", PLANTS)
def test_a_chunk_is_never_written_through_what_somebody_planted(
    at: Place, plant: Callable[[Path, Path], None]
) -> None:
    outside = at.jobs.parent / "outside"
    outside.mkdir()
    (outside / "big.bin").write_bytes(b"not ours")
    folder = at.whole().folder
    staging = at.staging()
    staging._have = [[False] * len(have) for have in staging._have]
    plant(folder, outside)
    fill(staging)
    assert contents(outside) == {"big.bin": b"not ours"}


def test_from_another_disk_it_is_copied_beside_and_renamed(
    at: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def across(self: Path, target: Path) -> Path:
        if at.incoming in self.parents and at.jobs in target.parents:
            raise OSError(18, "Invalid cross-device link")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", across)
    told: list[os.stat_result] = []
    placed = at.whole().place(at.jobs, "digits", about_to=told.append)
    assert contents(placed) == FILES
    assert told[-1].st_ino == placed.stat().st_ino
    assert [path.name for path in at.jobs.iterdir()] == ["digits"]
    assert not (at.jobs / BESIDE).exists()
    assert list(at.incoming.iterdir()) == []


def test_a_link_where_it_would_be_copied_beside_is_not_followed(
    at: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def across(self: Path, target: Path) -> Path:
        if at.incoming in self.parents and at.jobs in target.parents:
            raise OSError(18, "Invalid cross-device link")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", across)
    outside = at.jobs.parent / "outside"
    outside.mkdir()
    (at.jobs / BESIDE).symlink_to(outside)
    assert contents(at.whole().place(at.jobs, "digits")) == FILES
    assert list(outside.iterdir()) == []


def test_a_full_disk_is_told_with_its_remedy(at: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object) -> int:
        raise OSError(28, "No space left on device")

    staging = at.staging()
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StorageError, match=r"No space.*Make room"):
        fill(staging)


def test_only_what_is_still_wanted_stays_in_incoming(at: Place) -> None:
    staging = at.whole()
    (at.incoming / "stale").mkdir()
    (at.incoming / "stale" / "x").write_text("x")
    (at.incoming / "file").write_text("x")
    outside = at.jobs / "keep"
    outside.mkdir()
    (outside / "x").write_text("x")
    (at.incoming / "link").symlink_to(outside)
    clean_incoming(at.incoming, frozenset({staging.digest}))
    assert [path.name for path in at.incoming.iterdir()] == [staging.digest]
    assert contents(outside) == {"x": b"x"}
    staging.discard()
    assert list(at.incoming.iterdir()) == []
    clean_incoming(at.incoming / "none", frozenset())


@pytest.mark.parametrize("arrived", [False, True])
def test_what_a_crash_between_two_renames_left_is_swept(tmp_path: Path, arrived: bool) -> None:
    old = tmp_path / ".result-old-0123456789abcdef"
    old.mkdir()
    (old / "summary.json").write_text("old")
    (tmp_path / ".result-older").mkdir()  # none of ours
    if arrived:
        (tmp_path / "result").mkdir()
        (tmp_path / "result" / "summary.json").write_text("new")
    sweep_moved_away(tmp_path)
    assert (tmp_path / "result" / "summary.json").read_text() == ("new" if arrived else "old")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".result-older", "result"]


def test_a_planted_link_with_such_a_name_is_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").touch()
    (tmp_path / "result").mkdir()
    (tmp_path / ".result-old-0123456789abcdef").symlink_to(tmp_path / "outside")
    sweep_moved_away(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", "result"]
    assert (tmp_path / "outside" / "kept").exists()
