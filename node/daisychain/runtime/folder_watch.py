"""Looks at the jobs folder again and again, in one thread, and speaks up when something is new there."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from daisychain.core.ids import NodeId
from daisychain.core.node import HeldResult
from daisychain.errors import StorageError
from daisychain.host.bundles.results import ResultBook
from daisychain.host.clock import Clock
from daisychain.host.folder_changes import Changes, FolderChanges
from daisychain.host.job_folder import FoundJob, JobFolder, JobFolderSettings
from daisychain.host.sharing import SharedFolder

SHARE_OF_TIME = 100
"""A look that took t seconds is followed by a pause of at least this many t: at most 1% of a core."""

PAUSE_MAX_S = 60.0

QUIET_S = 2.0
"""The longest silence about a folder that stands still, since the ledger may have more to tell of its jobs.
Waking the event loop for nothing costs more than the look itself."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was there at one look.

    Attributes:
        jobs: by name.
        problem: why the folder could not be read; empty when it could.
        results: by a job folder's name, its result as it was published or fetched.
        occupied: names of the job folders in which a person's files stand where the result would go.
        sharers: the other nodes that use this very folder.
        settled: whether those had the time to show themselves; see `FolderReport`.
    """

    jobs: tuple[FoundJob, ...] = ()
    problem: str = ""
    results: tuple[tuple[str, HeldResult], ...] = ()
    occupied: frozenset[str] = frozenset()
    sharers: frozenset[NodeId] = frozenset()
    settled: bool = False


class FolderWatch:
    """One jobs folder under watch. `next` and what it calls run in a thread, one call at a time."""

    def __init__(
        self, folder: Path, node_id: NodeId, results: ResultBook, settings: JobFolderSettings, clock: Clock
    ) -> None:
        self.jobs = JobFolder(folder, settings)
        self.changes = FolderChanges(folder)
        self._shared = SharedFolder(folder, node_id)
        self._results = results
        self._poll_s = settings.poll_s
        self._clock = clock
        self._stopped = False
        self._called = threading.Event()
        self._looks = 0
        self._pause_s = 0.0

    def next(self, before: Look | None) -> tuple[Look, Changes]:
        """Return the next look that differs from ``before``, or the last one within QUIET_S.

        Without ``before`` that is the first one. Blocks for at most QUIET_S, one pause and one look; returns
        soon after `stop`, without another look.
        """
        until = self._clock.monotonic() + QUIET_S
        while True:
            self._called.wait(self._pause_s)
            self._called.clear()
            if self._stopped:
                return before or Look(), Changes()
            started = self._clock.monotonic()
            look, changes = self._look(started)
            ended = self._clock.monotonic()
            self._pause_s = min(PAUSE_MAX_S, max(self._poll_s, SHARE_OF_TIME * (ended - started)))
            if look != before or changes != Changes() or ended >= until:
                return look, changes

    def stop(self) -> None:
        """Have `next` return; from any thread."""
        self._stopped = True
        self._called.set()

    def look_now(self) -> None:
        """Have `next` look at once: something was put there that is whole; from any thread."""
        self._called.set()

    def placing(self, name: str, inode: int) -> None:
        """The folder with this inode is about to appear as ``name``, whole, and no person drops it."""
        self.changes.placing(name, inode)
        self.jobs.trust(inode)

    def leave(self) -> None:
        """Take our mark out of the folder: this node uses it no more."""
        self._shared.leave()

    def _look(self, now: float) -> tuple[Look, Changes]:
        wall = self._clock.wall()
        jobs: tuple[FoundJob, ...] = ()
        problem = ""
        try:
            jobs = self.jobs.scan(now, wall)
        except StorageError as error:
            problem = str(error)
        changes = self.changes.look(None if problem else {job.name: job.digest for job in jobs}, now)
        sharers = self._shared.look(now)
        self._looks += 1
        looked = [(job.name, self._results.look(job.folder, wall)) for job in jobs]
        look = Look(
            jobs=jobs,
            problem=problem,
            results=tuple(
                (name, HeldResult(found.run_id, found.digest))
                for name, found in looked
                if found is not None and found.ours and found.run_id is not None
            ),
            occupied=frozenset(name for name, found in looked if found is not None and not found.ours),
            sharers=sharers,
            # An agent that started with this one may have left its mark after our first look, and not later:
            # what starts after our second one finds our mark, and holds whatever this node has.
            settled=self._looks > 1,
        )
        return look, changes
