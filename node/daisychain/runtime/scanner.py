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
from daisychain.core.names import RESULT_FOLDER
from daisychain.core.node import HeldResult
from daisychain.core.orders import CHECKPOINT_EVERY_S, LoadRun
from daisychain.core.results import FolderReport
from daisychain.errors import BundleError, JobError, StorageError
from daisychain.host.bundles.reading import BundlePlace
from daisychain.host.bundles.results import ResultBook
from daisychain.host.clock import Clock
from daisychain.host.folder_changes import Changes, FolderChanges
from daisychain.host.job_folder import FoundJob, JobFolder, JobFolderSettings
from daisychain.host.ledger import Ledger, run_id_of, submission_of
from daisychain.host.sharing import SharedFolder
from daisychain.host.state_folder import StateFolder
from daisychain.net.bundles.paths import BundleKey

log = logging.getLogger(__name__)

SHARE_OF_TIME = 100
"""A look that took t seconds is followed by a pause of at least this many t: at most 1% of a core."""

PAUSE_MAX_S = 60.0

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
        self._settings = settings
        self._clock = clock
        self._wishes = wishes
        self._folder = JobFolder(folder, settings)
        self._changes = FolderChanges(folder)
        self._shared = SharedFolder(folder, node_id)
        self._results = ResultBook(state.results)
        self._result: dict[str, HeldResult] = {}
        self._occupied: frozenset[str] = frozenset()
        self._sharers: frozenset[NodeId] = frozenset()
        self._looks = 0
        self._found: dict[str, FoundJob] = {}
        self.problem = ""

    def named(self, name: str) -> FoundJob | None:
        """Return the job with this folder name."""
        return next((job for job in self._found.values() if job.name == name), None)

    def holding(self, digest: str) -> FoundJob | None:
        """Return a job with these very files."""
        return next((job for job in self._found.values() if job.digest == digest), None)

    def placing(self, name: str, inode: int) -> None:
        """The folder with this inode is about to appear under ``jobs/``, and no person drops it."""
        self._changes.placing(name, inode)

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
            return self._folder.manifest(job, self._clock.wall())
        manifest = self._results.manifest(job.folder, self._clock.wall())
        if manifest.digest != key.digest:
            raise BundleError(job.name, "its result has changed since it was found")
        return manifest

    def _held(self, key: BundleKey) -> FoundJob | None:
        if key.part is Part.RESULT:
            names = (name for name, result in self._result.items() if result.digest == key.digest)
            return self._found.get(next(names, ""))
        fit = (job for job in self._found.values() if job.digest == key.digest and not job.problem)
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
        if self._sharers:
            others = ", ".join(node_id[:8] for node_id in sorted(self._sharers))
            shared = f"the jobs folder is shared with node {others}: nothing is copied between them"
        occupied = [
            f"jobs/{name}/result was made or edited by a person: the chain's result does not replace it"
            for name in sorted(self._occupied)
        ]
        return (*filter(None, [self.problem, self._results.problem, shared]), *occupied)

    def _look(self, now: float, wall: float) -> tuple[Sequence[FoundJob], Changes, str]:
        """Return the jobs that are there, what changed, and why the folder cannot be read, if so.

        Takes time; all in one thread, since waking the event loop costs more than a look at a quiet folder.
        """
        jobs: Sequence[FoundJob] = ()
        problem = ""
        try:
            jobs = self._folder.scan(now, wall)
        except StorageError as error:
            problem = str(error)
        found = None if problem else {job.name: job.digest for job in jobs}
        changes = self._changes.look(found, now)
        self._look_beside(jobs)
        return jobs, changes, problem

    def _look_beside(self, jobs: Sequence[FoundJob]) -> None:
        """See who shares the folder, and which results lie in it. Takes time."""
        self._sharers = self._shared.look(self._clock.monotonic())
        self._looks += 1
        wall = self._clock.wall()
        looked = {job.name: self._results.look(job.folder, wall) for job in jobs}
        self._result = {
            name: HeldResult(found.run_id, found.digest)
            for name, found in looked.items()
            if found is not None and found.ours and found.run_id is not None
        }
        self._occupied = frozenset(name for name, found in looked.items() if found and not found.ours)

    def _beside(self, cards: Sequence[JobCard]) -> FolderReport:
        """Return what is told of the folder beside its jobs; an occupied one's result is not fetched."""
        results = sorted(self._result.values(), key=lambda result: result.run_id)
        occupied = frozenset(card.digest for card in cards if card.name in self._occupied)
        # An agent that started with this one may have left its mark after our first look, and not later: what
        # starts after our second one finds our mark, and holds whatever this node has.
        return FolderReport(tuple(results), occupied, self._sharers, settled=self._looks > 1)

    def leave(self) -> None:
        """The agent ends: it uses the folder no more."""
        self._shared.leave()

    async def run(self, ledger: Ledger, post: Callable[[Event], None]) -> None:
        """Scan until cancelled; ``post`` gets JobsScanned after the first look and after each change."""
        clock = self._clock
        told: JobsScanned | None = None
        while True:
            started = clock.monotonic()
            jobs, changes, problem = await asyncio.to_thread(self._look, started, clock.wall())
            if problem and problem != self.problem:
                log.warning("%s", problem)
            self.problem = problem
            self._found = {job.name: job for job in jobs}
            cards = tuple(self.card(job, ledger) for job in jobs)
            scanned = JobsScanned(cards, self._beside(cards))
            if scanned != told:
                told = scanned
                post(scanned)
            for event in self._wanted(changes, cards, clock.wall()):
                post(event)
            took_s = clock.monotonic() - started
            await asyncio.sleep(min(PAUSE_MAX_S, max(self._settings.poll_s, SHARE_OF_TIME * took_s)))
