"""Hostile bundles: none writes outside its folder, takes a second, or fills the disk past the budget."""

from __future__ import annotations

import os
import random
import shutil
import stat
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from daisychain.core.manifest import Manifest, ManifestLimits
from daisychain.errors import BundleError, ProtocolError, StorageError
from daisychain.host.bundles.budget import Disk, NoRoom, footprint_bytes, make_room
from daisychain.host.bundles.staging import Staging, clean_incoming
from daisychain.host.job_listing import Digests, list_job
from daisychain.wire.manifests import decode_manifest
from integration.bundles.hostile import Hostile, a_lie, hostile_bundle
from support.bundles import chunks_of

LIMITS = ManifestLimits(files_max=400, bytes_max=4 << 30)
BUDGET_BYTES = 6 << 20
DISK = Disk(total_bytes=100 << 30, free_bytes=50 << 30)
CPU_MAX_S = 1.0
TRIES = 6


class World:
    """A node's folders, and what lies beside them and must stay as it is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.jobs, self.state, self.outside = path / "jobs", path / "state", path / "outside"
        self.outcomes: Counter[str] = Counter()
        for folder in (self.jobs, self.state, self.outside):
            folder.mkdir()
        (self.outside / "canary").write_bytes(b"not yours")
        (self.state / "cluster.key").write_bytes(b"secret")
        (self.jobs / "mine").mkdir()
        (self.jobs / "mine" / "job.yaml").write_bytes(b"dropped here")
        (self.jobs / "link").symlink_to(self.outside)
        self.before = self.rest()

    @property
    def incoming(self) -> Path:
        return self.state / "incoming"

    def rest(self) -> dict[str, tuple[object, ...]]:
        """Return everything but what is being fetched: names, kinds, owners, contents."""
        found: dict[str, tuple[object, ...]] = {}
        for top in (self.path, self.state, self.outside, self.jobs, self.jobs / "mine"):
            for entry in os.scandir(top):
                facts = entry.stat(follow_symlinks=False)
                if (top == self.state and entry.name == "incoming") or (
                    top == self.jobs and entry.name not in ("mine", "link")
                ):
                    continue
                data = Path(entry.path).read_bytes() if stat.S_ISREG(facts.st_mode) else b""
                found[entry.path] = (facts.st_mode, facts.st_uid, facts.st_gid, facts.st_ino, data)
        return found

    def taken_bytes(self) -> int:
        """Return what was written to the disk for bundles."""
        return sum(
            path.lstat().st_blocks * 512
            for top in (self.jobs, self.incoming)
            for path in (top.rglob("*") if top.is_dir() and not top.is_symlink() else ())
            if (self.jobs / "mine") not in path.parents
        )

    def tidy(self) -> None:
        """Make the folders ready for the next bundle."""
        for entry in [*self.jobs.iterdir(), *self.state.iterdir()]:
            if entry.name in ("mine", "link", "cluster.key"):
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()


@pytest.fixture
def world() -> Iterator[World]:
    # in memory where there is such a disk: thousands of fsyncs are not what is tested
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as path:
        yield World(Path(path))


def take(world: World, bundle: Hostile) -> str:
    """Do with the bundle what a node does with a peer's; return how it ended."""
    chance = random.Random(~bundle.seed)
    try:
        manifest = decode_manifest(bundle.wire, LIMITS)
    except (ProtocolError, BundleError) as refused:
        assert str(refused).isprintable()
        return type(refused).__name__
    clean_incoming(world.incoming, frozenset())
    need = footprint_bytes(manifest)
    if isinstance(make_room(need, (), frozenset(), DISK, BUDGET_BYTES), NoRoom):
        return "NoRoom"
    folder = world.incoming / manifest.digest
    plants = list(bundle.plants)
    if plants and chance.random() < 0.5:
        plants.pop()(folder, world.jobs, world.outside, chance)
    for _ in range(TRIES):
        try:
            staging = Staging(world.incoming, manifest)
            fetch(staging, manifest, bundle, chance)
            if staging.missing():
                return "never whole"
            if plants:
                plants.pop()(folder, world.jobs, world.outside, chance)
            placed = staging.place(world.jobs, bundle.job)
        except (BundleError, StorageError):
            continue  # as a node would: again, or another peer
        assert world.taken_bytes() <= need
        check_placed(placed, manifest)
        return "placed"
    assert world.taken_bytes() <= need + 64 * 4096  # what was planted by hand is none of the bundle's
    return "not placed"


def fetch(staging: Staging, manifest: Manifest, bundle: Hostile, chance: random.Random) -> None:
    for file, chunk in staging.missing():
        held = chunks_of(bundle.contents.get(manifest.files[file].name, b""))
        data = held[chunk] if chunk < len(held) else bytes(manifest.chunk_size(file, chunk))
        if chance.random() < bundle.lies:
            try:
                staging.put(file, chunk, a_lie(data, chance))
            except BundleError:
                assert (file, chunk) in staging.missing()
        try:
            staging.put(file, chunk, data)
        except BundleError:
            return  # its contents fit no hash: nobody has it


def check_placed(placed: Path, manifest: Manifest) -> None:
    for path in [placed, *placed.rglob("*")]:
        facts = path.lstat()
        assert stat.S_ISDIR(facts.st_mode) or stat.S_ISREG(facts.st_mode), path
        assert stat.S_IMODE(facts.st_mode) in (0o755, 0o644), path
        assert stat.S_ISDIR(facts.st_mode) or facts.st_nlink == 1, path
    listing = list_job(placed, LIMITS.files_max)
    assert listing.problem == ""
    assert Digests(LIMITS.files_max).manifest(placed, listing, wall=0.0).digest == manifest.digest


def run(world: World, seeds: range) -> None:
    for seed in seeds:
        bundle = hostile_bundle(seed)
        began = time.thread_time()
        outcome = take(world, bundle)
        took_s = time.thread_time() - began
        assert took_s < CPU_MAX_S, f"seed {seed} took {took_s:.1f} s"
        assert world.rest() == world.before, f"seed {seed} reached outside its folder"
        world.outcomes[outcome] += 1
        world.tidy()
    print(dict(world.outcomes))
    few = len(seeds) // 100
    for outcome in ("ProtocolError", "BundleError", "NoRoom", "never whole", "placed", "not placed"):
        assert world.outcomes[outcome] > few // 4, f"{outcome} was hardly tried: {dict(world.outcomes)}"


def test_some_hostile_bundles(world: World) -> None:
    run(world, range(400))


@pytest.mark.long
def test_ten_thousand_hostile_bundles(world: World) -> None:
    run(world, range(10_000))
