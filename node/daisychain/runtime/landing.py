"""Where what was fetched goes: chunks into the state folder, the whole into the jobs folder; the budget."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

from daisychain.core.effects import Fetch, Part
from daisychain.core.ids import RunId
from daisychain.core.jobs import JobCard
from daisychain.core.manifest import Manifest
from daisychain.core.names import RESULT_FOLDER, check_job_name
from daisychain.errors import BundleError, StorageError
from daisychain.host.bundles.budget import NoRoom, footprint_bytes, make_room, read_disk
from daisychain.host.bundles.fetched import FetchedCopies
from daisychain.host.bundles.results import ResultBook
from daisychain.host.bundles.staging import Staging, clean_incoming, sweep_moved_away
from daisychain.host.clock import Clock
from daisychain.host.job_folder import ENTRIES_MAX
from daisychain.host.job_listing import Digests
from daisychain.host.ledger import submission_of
from daisychain.runtime.download import Stage

FILES_MAX = 20_000
"""Files whose hashes are remembered while copies are looked at."""


@dataclass(frozen=True, slots=True)
class LandingPlace:
    """Where fetched bundles go.

    Attributes:
        incoming: the state folder's, for chunks.
        jobs_folder: for what is whole.
        max_bytes: most disk that fetched copies may take; None = a share of it.
    """

    incoming: Path
    jobs_folder: Path
    max_bytes: int | None = None


class Folders(Protocol):
    """The jobs folder, as the landing needs it."""

    @property
    def results(self) -> ResultBook:
        """What is remembered of the result folders."""

    def job_folder(self, digest: str) -> Path | None:
        """Return where the job with this digest lies; None when it is not here."""

    def placing(self, name: str, inode: int) -> None:
        """The folder with this inode is about to appear under ``jobs/``, and no person drops it."""

    def placed(self) -> None:
        """It is there."""


class BundleLanding:
    """The stages of fetched bundles on this machine's disk, and their place under ``jobs/``."""

    def __init__(self, place: LandingPlace, copies: FetchedCopies, folders: Folders, clock: Clock) -> None:
        self._folders = folders
        self._place = place
        self._copies = copies
        self._clock = clock
        self._digests = Digests(FILES_MAX)
        self._lock = threading.Lock()  # fetches of both parts may land at once

    def sweep(self) -> None:
        """Mend what a crash left half replaced, in the jobs folder and in each job's; takes time."""
        jobs = self._place.jobs_folder
        sweep_moved_away(jobs)
        with contextlib.suppress(OSError):
            for folder in islice(jobs.iterdir(), ENTRIES_MAX):
                if folder.is_dir() and not folder.is_symlink():
                    sweep_moved_away(folder)

    def open_stage(self, order: Fetch, manifest: Manifest, in_use: frozenset[str]) -> Stage:
        """Return the bundle's stage, with what it holds from before; makes room for it.

        ``in_use``: digests of jobs and results: their copies and chunks stay.
        Raises `BundleError` when the job's name, a peer's word, may be no folder's, or the manifest no
        bundle's; `StorageError` when it does not fit.
        """
        check_job_name(order.card.name)
        with self._lock:
            clean_incoming(self._place.incoming, in_use | {manifest.digest})
            stage = Staging(self._place.incoming, manifest)
            self._make_room(footprint_bytes(manifest) - stage.present_bytes, in_use)
            return stage

    def place(self, order: Fetch, stage: Stage) -> Path:
        """Put the whole bundle into its place at once; return where.

        Where another job has its name, it goes beside it as ``<name>-<first 8 digits of its digest>``. A
        result takes the place of an older one. Raises `BundleError`, `StorageError`.
        """
        assert isinstance(stage, Staging)  # noqa: S101 - our own
        name, digest = order.card.name, stage.digest
        with self._lock:
            if order.part is Part.RESULT:
                return self._place_result(stage, order.card)
            try:
                return self._place_as(stage, name)
            except BundleError:
                return self._place_as(stage, f"{name[:200]}-{digest[:8]}")

    def _place_result(self, stage: Staging, card: JobCard) -> Path:
        """Put a result into its job's folder, unless a person's files or a newer result stand there."""
        folder = self._folders.job_folder(card.digest)
        if folder is None:
            raise BundleError(card.name, "its folder is no longer here")
        standing = self._folders.results.look(folder, self._clock.wall())
        if standing is not None and not standing.ours:
            raise BundleError(card.name, "what stands in its result folder was made or edited by a person")
        if standing is not None and _is_newer(standing.run_id, card):
            raise BundleError(card.name, f"the result of {standing.run_id} is there already")
        self._folders.results.about_to_place(folder.name, card.run_id, stage.digest)
        return stage.place(folder, RESULT_FOLDER, replace=True)

    def _place_as(self, stage: Staging, name: str) -> Path:
        def remember(facts: os.stat_result) -> None:
            self._copies.about_to_place(name, stage.digest, facts, self._clock.wall())
            self._folders.placing(name, facts.st_ino)

        placed = stage.place(self._place.jobs_folder, name, about_to=remember)
        self._folders.placed()
        return placed

    def _make_room(self, need_bytes: int, in_use: frozenset[str]) -> None:
        """Remove fetched copies until the bundle fits into the budget, or raise `StorageError`."""
        place = self._place
        try:
            disk = read_disk(place.jobs_folder)
        except OSError as error:
            raise StorageError(f"{place.jobs_folder} cannot be read: {error.strerror}") from None
        room = make_room(max(0, need_bytes), self._copies.present(), in_use, disk, place.max_bytes)
        if isinstance(room, NoRoom):
            raise StorageError(room.reason, room.remedy)
        for copy in room.remove:
            self._copies.remove(copy, self._digests, self._clock.wall())


def _is_newer(standing: RunId | None, card: JobCard) -> bool:
    """Whether the result of ``standing`` is of a later run of the very job of ``card``."""
    if standing is None or standing.rpartition("-")[0] != card.run_id.rpartition("-")[0]:
        return False
    return submission_of(standing) > submission_of(card.run_id)
