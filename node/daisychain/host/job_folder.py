"""The jobs folder, looked at again and again: which jobs are there, whole and at rest.

Polled, because inotify crosses neither Docker Desktop's bind mounts nor NFS.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import assert_never

from daisychain.core.ids import RunId
from daisychain.core.job_spec import JobSpec, PythonModel, TableModel
from daisychain.core.jobs import JobCard, JobState
from daisychain.core.manifest import BUNDLE_LIMITS, Manifest, ManifestLimits
from daisychain.core.names import check_job_name, check_names, is_copying
from daisychain.core.node import JOBS_MAX
from daisychain.errors import BundleError, JobError, StorageError
from daisychain.host.bundles.results import result_run
from daisychain.host.job_listing import Digests, Listing, list_job
from daisychain.host.ledger import Ledger, run_id_of, submission_of
from daisychain.wire.job_yaml import parse_job

JOB_FILE = "job.yaml"
READY_FILE = ".ready"
"""A folder with such a file in it is whole, says who copied it in: it is a job at once."""

ENTRIES_MAX = 10_000
"""Most entries of the jobs folder that are looked at: bounds the time of a look."""

OLD_S = 5.0
"""A folder whose newest change is older than this was at rest before the agent first looked."""


WHOLE_MAX = 256
"""Most folders that are expected to appear whole: those that never do must not add up."""


@dataclass(frozen=True, slots=True)
class JobFolderSettings:
    """Bounds on the jobs folder.

    Attributes:
        poll_s: seconds between two looks.
        settle_s: a folder that changed within this time is still being copied in.
        jobs_max: most jobs looked at: bounds what a heartbeat carries.
        bundle: what one job may be.
        job_yaml_max_bytes: largest job.yaml read: more is no job.yaml.
    """

    poll_s: float = 1.0
    settle_s: float = 1.0
    jobs_max: int = JOBS_MAX
    bundle: ManifestLimits = BUNDLE_LIMITS
    job_yaml_max_bytes: int = 1 << 16


@dataclass(frozen=True, slots=True)
class FoundJob:
    """One job at rest in the jobs folder.

    Attributes:
        name: the folder's name.
        folder: where it is.
        digest: its manifest's; of a job that cannot be trained something that changes when the folder does.
        spec: what job.yaml says; None when ``problem`` says why it cannot be trained.
        problem: file, key, what is wrong and what to do; empty when it can be trained.
        changed_at: Unix seconds of the newest change to job.yaml, or when it was first seen, the lesser.
        finished: the run whose result lies in ``result/``; None when there is none of this digest.
    """

    name: str
    folder: Path
    digest: str
    spec: JobSpec | None
    problem: str
    changed_at: float
    finished: RunId | None

    def card(self, ledger: Ledger) -> JobCard:
        """Return the card of this job's newest run: as it was recorded, or finished, failed or queued."""
        done = 0 if self.finished is None else submission_of(self.finished)
        submission = max(1, ledger.last_submission(self.digest), done)
        run_id = run_id_of(self.digest, submission)
        recorded = ledger.card(run_id)
        if recorded is not None and recorded.state.ended:
            return recorded
        state, reason = JobState.QUEUED, ""
        if done == submission:
            state = JobState.FINISHED
        elif self.spec is None:
            state, reason = JobState.FAILED, self.problem
        submitted_at = recorded.submitted_at if recorded is not None else self.changed_at
        return self.wishes(JobCard(run_id, self.name, self.digest, submitted_at, state, reason))

    def wishes(self, card: JobCard) -> JobCard:
        """Return ``card`` with what job.yaml says of its place in the queue and its nodes."""
        if self.spec is None:
            return card
        return replace(
            card,
            min_nodes=self.spec.min_nodes,
            max_nodes=self.spec.max_nodes or 0,
            priority=self.spec.priority,
        )


class JobFolder:
    """The jobs folder of one node."""

    def __init__(self, path: Path, settings: JobFolderSettings) -> None:
        self._path = path
        self._settings = settings
        self._digests = Digests(4 * settings.bundle.files_max)
        self._watched: dict[str, tuple[str, float]] = {}
        self._found: dict[str, tuple[str, FoundJob]] = {}
        self._whole: tuple[int, ...] = ()

    def trust(self, inode: int) -> None:
        """The folder with this inode will be whole when it appears, so nothing need be waited for.

        Called before it is there, from another thread than `scan`.
        """
        self._whole = (*self._whole, inode)[-WHOLE_MAX:]

    def scan(self, now: float, wall: float) -> tuple[FoundJob, ...]:
        """Return the jobs that are whole and at rest at ``now`` (monotonic seconds), by name.

        A folder without job.yaml is no job, and ``NAME.part`` none yet. Takes as long as hashing what is
        new takes: call it in a thread. ``wall`` is Unix seconds. Raises `StorageError` when the jobs folder
        cannot be read.
        """
        try:
            entries = islice(self._path.iterdir(), ENTRIES_MAX)
            folders = sorted(entry for entry in entries if _may_be_job(entry.name) and entry.is_dir())
        except OSError as error:
            raise StorageError(
                f"the jobs folder {self._path} cannot be read: {error.strerror or error}",
                "Make it, or name another with --jobs-folder.",
            ) from error
        for gone in self._watched.keys() - {folder.name for folder in folders}:
            del self._watched[gone]
            self._found.pop(gone, None)
        jobs: list[FoundJob] = []
        for folder in folders:
            found = self._look(folder, now, wall)
            if found is not None:
                jobs.append(found)
            if len(jobs) == self._settings.jobs_max:
                break
        return tuple(jobs)

    def manifest(self, job: FoundJob, wall: float) -> Manifest:
        """Return the manifest of a job that was found; ``wall`` is Unix seconds.

        From what is remembered of its files; it reads those that are not. Call it in a thread. Raises
        `BundleError` when the folder no longer holds that job.
        """
        try:
            listing = list_job(job.folder, self._settings.bundle.files_max)
            manifest = self._digests.manifest(job.folder, listing, wall)
        except OSError as error:
            raise BundleError(job.name, f"it cannot be read: {error.strerror or error}") from None
        if listing.problem or manifest.digest != job.digest:
            raise BundleError(job.name, "it has changed since it was found")
        return manifest

    def _look(self, folder: Path, now: float, wall: float) -> FoundJob | None:
        try:
            if not (folder / JOB_FILE).is_file():
                return None
            listing = list_job(folder, self._settings.bundle.files_max)
            fingerprint = listing.fingerprint()
            if not self._at_rest(folder.name, listing, fingerprint, (now, wall)):
                return None
            known = self._found.get(folder.name)
            if known is not None and known[0] == fingerprint:
                found = known[1]
            else:
                found = read_job(folder, listing, self._digests, self._settings, wall)
                if list_job(folder, self._settings.bundle.files_max).fingerprint() != fingerprint:
                    return None  # it changed under our hands
                self._found[folder.name] = (fingerprint, found)
        except OSError:
            return None  # it is being removed or replaced
        return replace(found, finished=finished_run(folder, found.digest))

    def _at_rest(self, name: str, listing: Listing, fingerprint: str, at: tuple[float, float]) -> bool:
        now, wall = at
        watched = self._watched.get(name)
        if watched is None or watched[0] != fingerprint:
            came_whole = watched is None and self._is_whole(name)
            since = now - self._settings.settle_s if came_whole else now
            self._watched[name] = watched = (fingerprint, since)
        if now - watched[1] >= self._settings.settle_s or (self._path / name / READY_FILE).is_file():
            return True
        newest_at = listing.newest_at if listing.files else wall
        return newest_at <= wall - max(OLD_S, self._settings.settle_s)  # at rest since before we looked

    def _is_whole(self, name: str) -> bool:
        """Whether the folder, first seen now, is one to be trusted; it is asked once."""
        inode = (self._path / name).lstat().st_ino
        if inode not in self._whole:
            return False
        self._whole = tuple(each for each in self._whole if each != inode)
        return True


def _may_be_job(name: str) -> bool:
    """Whether a folder of this name may be a job, now."""
    return not name.startswith(".") and not is_copying(name)


def read_job(
    folder: Path, listing: Listing, digests: Digests, settings: JobFolderSettings, wall: float
) -> FoundJob:
    """Return what the folder holds, with its problem where it has one.

    Raises OSError when it vanishes or changes meanwhile.
    """
    problem, spec = "", None
    digest = listing.fingerprint()  # of a job that cannot be hashed: another one once it is mended
    try:
        if listing.problem:
            raise JobError(folder.name, listing.problem, "Put only plain files and folders into a job")
        if listing.bytes > settings.bundle.bytes_max:
            raise JobError(
                folder.name,
                f"it holds {listing.bytes} bytes, and a job may hold {settings.bundle.bytes_max}",
                "Train on a part of the data",
            )
        check_job_name(folder.name)
        check_names([file.name for file in listing.files], settings.bundle.files_max)
        digest = digests.manifest(folder, listing, wall).digest
        spec = _parse(folder / JOB_FILE, settings.job_yaml_max_bytes)
        _check_named_files(spec, {file.name for file in listing.files}, folder)
    except PermissionError as error:
        name = Path(error.filename or folder).name
        problem, spec = f"{name}: this user may not read it. Give the agent's user the right to", None
    except JobError as error:
        problem, spec = str(error), None
    job_file = next((file for file in listing.files if file.name == JOB_FILE), None)
    changed_at = wall if job_file is None else min(wall, job_file.stamp.mtime_ns / 1e9)
    return FoundJob(folder.name, folder, digest, spec, problem, changed_at, None)


def _parse(path: Path, max_bytes: int) -> JobSpec:
    """Return what job.yaml says; raises `JobError`, or OSError when it is gone."""
    with path.open("rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise JobError(JOB_FILE, f"it is over {max_bytes} bytes", "Put data into files of their own")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise JobError(JOB_FILE, f"it is not UTF-8 (byte {error.start})", "Save it as UTF-8") from None
    return parse_job(text, JOB_FILE)


def _check_named_files(spec: JobSpec, names: set[str], folder: Path) -> None:
    """Raise `JobError` for a file that job.yaml names and the folder lacks."""
    match spec.model:
        case TableModel(data=data):
            named = [("data", data)]
        case PythonModel(file=file):
            named = [("file", file)]
        case _:
            assert_never(spec.model)
    if spec.init_from is not None:
        named.append(("init_from", spec.init_from))
    for key, name in named:
        if name not in names:
            raise JobError(
                f"{JOB_FILE}: {key}",
                f"there is no file {name!r} in {folder.name}/",
                "Copy it there, or mend the name",
            )


def finished_run(folder: Path, digest: str) -> RunId | None:
    """Return the run of the job with this digest whose result lies in ``folder/result``, or None."""
    run_id = result_run(folder)
    if run_id is None:
        return None  # no result of ours
    return run_id if run_id.rpartition("-")[0] == digest[:16] and submission_of(run_id) > 0 else None
