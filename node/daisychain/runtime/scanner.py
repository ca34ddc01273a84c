"""Looks at the jobs folder again and again, in a thread, and tells the machine what is there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from daisychain.core.effects import Part
from daisychain.core.events import Event, FolderDeleted, FolderEdited, JobsScanned, SubmitAsked
from daisychain.core.ids import NodeId
from daisychain.core.jobs import JobCard, JobState
from daisychain.core.manifest import Manifest
from daisychain.core.orders import CHECKPOINT_EVERY_S, LoadRun
from daisychain.errors import BundleError, JobError, StorageError
from daisychain.host.clock import Clock
from daisychain.host.folder_changes import Changes, FolderChanges
from daisychain.host.job_folder import FoundJob, JobFolder, JobFolderSettings
from daisychain.host.ledger import Ledger, run_id_of, submission_of
from daisychain.host.state_folder import StateFolder
from daisychain.net.bundles.paths import BundleKey

log = logging.getLogger(__name__)

SHARE_OF_TIME = 100
"""A look that took t seconds is followed by a pause of at least this many t: at most 1% of a core."""

PAUSE_MAX_S = 60.0


@dataclass(frozen=True, slots=True)
class TrainingWishes:
    """What a person wants of every run on this node.

    Attributes:
        min_nodes: the first world of every job waits for so many, or more where the job says so.
        checkpoint_every_s, cache_max_bytes: see `LoadRun`.
    """

    min_nodes: int = 1
    checkpoint_every_s: float = CHECKPOINT_EVERY_S
    cache_max_bytes: int = 0


class Scanner:
    """The node's jobs as last seen."""

    def __init__(
        self,
        node_id: NodeId,
        state: StateFolder,
        folder: Path,
        settings: JobFolderSettings,
        clock: Clock,
        wishes: TrainingWishes = TrainingWishes(),
    ) -> None:
        self._node_id = node_id
        self._state = state
        self._settings = settings
        self._clock = clock
        self._wishes = wishes
        self._folder = JobFolder(folder, settings)
        self._changes = FolderChanges(folder)
        self.placing = self._changes.placing
        self._found: dict[str, FoundJob] = {}
        self.problem = ""

    def named(self, name: str) -> FoundJob | None:
        """Return the job with this folder name."""
        return next((job for job in self._found.values() if job.name == name), None)

    def holding(self, digest: str) -> FoundJob | None:
        """Return a job with these very files."""
        return next((job for job in self._found.values() if job.digest == digest), None)

    def bundle(self, key: BundleKey) -> Path | None:
        """Return the folder of a job that can be given to others; None when it is not here."""
        job = self._held(key)
        return None if job is None else job.folder

    def read_manifest(self, key: BundleKey) -> Manifest:
        """Return the manifest of such a job; may take time. Raises `BundleError` when it has changed."""
        job = self._held(key)
        if job is None:
            raise BundleError(key.name[:16], "it is no longer here")
        return self._folder.manifest(job, self._clock.wall())

    def _held(self, key: BundleKey) -> FoundJob | None:
        if key.part is not Part.FOLDER:
            return None
        fit = (job for job in self._found.values() if job.digest == key.name and not job.problem)
        return next(fit, None)

    def card(self, job: FoundJob, ledger: Ledger) -> JobCard:
        """Return the card of the job's newest run, as this node tells it."""
        return self.wishes(job.card(ledger))

    def wishes(self, card: JobCard) -> JobCard:
        """Return ``card`` with what a person wants of every run on this node."""
        return replace(card, min_nodes=max(card.min_nodes, self._wishes.min_nodes))

    def _wanted(self, changes: Changes, cards: Sequence[JobCard], wall: float) -> list[Event]:
        """Return what a person wants who changed these folders; what was put back is a new run."""
        again = [c for c in cards if c.state is JobState.WITHDRAWN and c.digest in changes.dropped]
        return [
            *(FolderEdited(name, digest) for name, digest in changes.edited),
            *(FolderDeleted(name, digest) for name, digest in changes.deleted),
            *(
                SubmitAsked(card.again(run_id_of(card.digest, submission_of(card.run_id) + 1), wall))
                for card in again
            ),
        ]

    def load_order(self, card: JobCard) -> LoadRun:
        """Return the trainer's first order for ``card``; raises `JobError` or `StorageError`."""
        job = self.holding(card.digest)
        if job is None:
            raise JobError(
                card.name,
                f"this node's copy is not the one of run {card.run_id}",
                "Copy the job's folder from the node that has it",
            )
        run_folder = self._state.runs.folder(card.run_id).resolve()
        return LoadRun(
            run_id=card.run_id,
            node_id=self._node_id,
            job_name=job.name,
            job_folder=str(job.folder.resolve()),
            run_folder=str(run_folder),
            checkpoint_every_s=self._wishes.checkpoint_every_s,
            cache_folder=str(self._state.cache.resolve()),
            cache_max_bytes=self._wishes.cache_max_bytes,
        )

    async def run(self, ledger: Ledger, post: Callable[[Event], None]) -> None:
        """Scan until cancelled; ``post`` gets JobsScanned after the first look and after each change."""
        clock = self._clock
        told: tuple[JobCard, ...] | None = None
        while True:
            started = clock.monotonic()
            try:
                jobs = await asyncio.to_thread(self._folder.scan, started, clock.wall())
            except StorageError as error:
                if str(error) != self.problem:
                    self.problem = str(error)
                    log.warning("%s", self.problem)
                jobs = ()
            else:
                self.problem = ""
            found = None if self.problem else {job.name: job.digest for job in jobs}
            changes = await asyncio.to_thread(self._changes.look, found, started)
            self._found = {job.name: job for job in jobs}
            cards = tuple(self.card(job, ledger) for job in jobs)
            if cards != told:
                told = cards
                post(JobsScanned(cards))
            for event in self._wanted(changes, cards, clock.wall()):
                post(event)
            took_s = clock.monotonic() - started
            await asyncio.sleep(min(PAUSE_MAX_S, max(self._settings.poll_s, SHARE_OF_TIME * took_s)))
