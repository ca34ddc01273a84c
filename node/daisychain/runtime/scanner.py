"""The node's jobs as last seen: told to the machine, found for whoever asks."""

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
from daisychain.core.names import RESULT_FOLDER
from daisychain.core.orders import CHECKPOINT_EVERY_S, LoadRun
from daisychain.core.results import FolderReport
from daisychain.errors import BundleError, JobError
from daisychain.host.bundles.reading import BundlePlace
from daisychain.host.bundles.results import ResultBook
from daisychain.host.clock import Clock
from daisychain.host.folder_changes import Changes
from daisychain.host.job_folder import FoundJob, JobFolderSettings
from daisychain.host.ledger import Ledger, run_id_of, submission_of
from daisychain.host.state_folder import StateFolder
from daisychain.net.bundles.paths import BundleKey
from daisychain.runtime.folder_watch import FolderWatch, Look

log = logging.getLogger(__name__)

_BELOW = {Part.FOLDER: "", Part.RESULT: RESULT_FOLDER}
"""Where in a job's folder each part lies."""


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
        self._clock = clock
        self._wishes = wishes
        self._results = ResultBook(state.results)
        self._watch = FolderWatch(folder, node_id, self._results, settings, clock)
        self._seen = Look()

    def named(self, name: str) -> FoundJob | None:
        """Return the job with this folder name."""
        return next((job for job in self._seen.jobs if job.name == name), None)

    def holding(self, digest: str) -> FoundJob | None:
        """Return a job with these very files."""
        return next((job for job in self._seen.jobs if job.digest == digest), None)

    def placing(self, name: str, inode: int) -> None:
        """The folder with this inode is about to appear under ``jobs/``, and no person drops it."""
        self._watch.placing(name, inode)

    def placed(self) -> None:
        """It is there: look at once."""
        self._watch.look_now()

    def job_folder(self, digest: str) -> Path | None:
        """Return where the job with these very files lies; None when it is not here."""
        job = self.holding(digest)
        return None if job is None else job.folder

    def bundle(self, key: BundleKey) -> BundlePlace | None:
        """Return where a job or a result lies that can be given to others; None when it is not here."""
        job = self._held(key)
        return None if job is None else BundlePlace(job.folder, _BELOW[key.part])

    def read_manifest(self, key: BundleKey) -> Manifest:
        """Return the manifest of such a bundle; may take time. Raises `BundleError` when it has changed."""
        job = self._held(key)
        if job is None:
            raise BundleError(key.digest[:16], "it is no longer here")
        if key.part is Part.FOLDER:
            return self._watch.jobs.manifest(job, self._clock.wall())
        manifest = self._results.manifest(job.folder, self._clock.wall())
        if manifest.digest != key.digest:
            raise BundleError(job.name, "its result has changed since it was found")
        return manifest

    def _held(self, key: BundleKey) -> FoundJob | None:
        if key.part is Part.RESULT:
            names = (name for name, result in self._seen.results if result.digest == key.digest)
            return self.named(next(names, ""))
        fit = (job for job in self._seen.jobs if job.digest == key.digest and not job.problem)
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

    @property
    def results(self) -> ResultBook:
        """What is remembered of the result folders."""
        return self._results

    def problems(self) -> tuple[str, ...]:
        """Return what a person should know of the jobs folder."""
        shared = ""
        if self._seen.sharers:
            others = ", ".join(node_id[:8] for node_id in sorted(self._seen.sharers))
            shared = f"the jobs folder is shared with node {others}: nothing is copied between them"
        occupied = [
            f"jobs/{name}/result was made or edited by a person: the chain's result does not replace it"
            for name in sorted(self._seen.occupied)
        ]
        return (*filter(None, [self._seen.problem, self._results.problem, shared]), *occupied)

    def _beside(self, cards: Sequence[JobCard]) -> FolderReport:
        """Return what is told of the folder beside its jobs; an occupied one's result is not fetched."""
        seen = self._seen
        results = sorted((result for _, result in seen.results), key=lambda result: result.run_id)
        occupied = frozenset(card.digest for card in cards if card.name in seen.occupied)
        return FolderReport(tuple(results), occupied, seen.sharers, seen.settled)

    def leave(self) -> None:
        """The agent ends: it uses the folder no more."""
        self._watch.leave()

    async def run(self, ledger: Ledger, post: Callable[[Event], None]) -> None:
        """Scan until cancelled; ``post`` gets JobsScanned after the first look and after each change."""
        told: JobsScanned | None = None
        before: Look | None = None
        try:
            while True:
                look, changes = await asyncio.to_thread(self._watch.next, before)
                if look.problem and look.problem != self._seen.problem:
                    log.warning("%s", look.problem)
                self._seen = before = look
                cards = tuple(self.card(job, ledger) for job in look.jobs)
                scanned = JobsScanned(cards, self._beside(cards))
                if scanned != told:
                    told = scanned
                    post(scanned)
                for event in self._wanted(changes, cards, self._clock.wall()):
                    post(event)
        finally:
            self._watch.stop()
