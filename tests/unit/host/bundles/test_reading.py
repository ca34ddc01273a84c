"""Chunks are read from below the bundle's folder alone, and only while they are what the manifest says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from daisychain.core.manifest import CHUNK_BYTES, Manifest
from daisychain.errors import BundleError
from daisychain.host.bundles.below import opened
from daisychain.host.bundles.reading import BundlePlace, FileStamp, hash_chunks, read_chunk
from daisychain.host.job_listing import Digests, list_job

DATA = bytes(range(256)) * (CHUNK_BYTES // 256) + b"and a bit"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job" / "sub").mkdir(parents=True)
    (tmp_path / "job" / "sub" / "data.bin").write_bytes(DATA)
    (tmp_path / "job" / "job.yaml").write_bytes(b"kind: table")
    (tmp_path / "secret").write_bytes(DATA)
    return tmp_path / "job"


@pytest.fixture
def manifest(folder: Path) -> Manifest:
    return Digests(10).manifest(folder, list_job(folder, 10), wall=0.0)


def test_every_chunk_is_what_the_file_holds(folder: Path, manifest: Manifest) -> None:
    read = {place: read_chunk(BundlePlace(folder), manifest, *place) for place in manifest.chunks()}
    assert read == {(0, 0): b"kind: table", (1, 0): DATA[:CHUNK_BYTES], (1, 1): b"and a bit"}


def change(folder: Path) -> None:
    (folder / "sub" / "data.bin").write_bytes(DATA[:-1] + b"!")


def cut(folder: Path) -> None:
    os.truncate(folder / "sub" / "data.bin", CHUNK_BYTES + 3)


def remove(folder: Path) -> None:
    (folder / "sub" / "data.bin").unlink()


def link(folder: Path) -> None:
    remove(folder)
    (folder / "sub" / "data.bin").symlink_to("../../secret")


def link_folder(folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir()
    (folder.parent / "elsewhere" / "data.bin").write_bytes(DATA)
    remove(folder)
    (folder / "sub").rmdir()
    (folder / "sub").symlink_to("../elsewhere")


def pipe(folder: Path) -> None:
    remove(folder)
    os.mkfifo(folder / "sub" / "data.bin")


def make_folder(folder: Path) -> None:
    remove(folder)
    (folder / "sub" / "data.bin").mkdir()


@pytest.mark.parametrize("meddle", [change, cut, remove, link, link_folder, pipe, make_folder])
def test_a_file_that_is_no_longer_the_one_is_never_told(
    folder: Path, manifest: Manifest, meddle: object
) -> None:
    assert callable(meddle)
    meddle(folder)
    with pytest.raises(BundleError, match=r"sub/data\.bin"):
        read_chunk(BundlePlace(folder), manifest, 1, 1)


@pytest.mark.parametrize("meddle", [change, cut, remove, link, link_folder, pipe, make_folder])
def test_a_file_that_is_no_longer_the_listed_one_is_not_hashed(folder: Path, meddle: object) -> None:
    stamp = FileStamp.of((folder / "sub" / "data.bin").stat())
    assert callable(meddle)
    meddle(folder)
    with pytest.raises(OSError, match=r"data\.bin|changed|link|Not a directory|such"):
        hash_chunks(folder, "sub/data.bin", stamp)


def test_opening_leaves_no_descriptor_behind(folder: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for name in ("sub/data.bin", "sub/none", "none/data.bin", "job.yaml/x"):
        try:
            with opened(folder, name):
                pass
        except OSError:
            pass
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_hashes_are_remembered_within_their_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        (tmp_path / f"{number}.csv").write_text(f"{number}")
    reads: list[int] = []
    read = os.pread

    def counted(file: int, size: int, at: int) -> bytes:
        reads.append(at)
        return read(file, size, at)

    monkeypatch.setattr(os, "pread", counted)
    listing = list_job(tmp_path, 10)
    for digests, again in ((Digests(6), 0), (Digests(6, chunks_max=5), 6), (Digests(5), 6)):
        first = digests.manifest(tmp_path, listing, wall=0.0)
        reads.clear()
        assert digests.manifest(tmp_path, listing, wall=0.0) == first
        assert len(reads) == again
    young = Digests(6)
    young.manifest(tmp_path, listing, wall=(tmp_path / "0.csv").stat().st_mtime)
    reads.clear()
    young.manifest(tmp_path, listing, wall=0.0)
    assert len(reads) == 6  # a file as young as that may yet change within its time stamp's grain
