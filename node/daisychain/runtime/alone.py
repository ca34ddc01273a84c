"""One machine, no cluster: the same trainer, the same loop, in a world of one."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

from daisychain.core.ids import Generation, NodeId, RunId, Term
from daisychain.core.orders import FormWorld, LoadRun, PeerBlobs
from daisychain.core.reports import (
    LocalBlob,
    Report,
    RunFailed,
    RunFinished,
    TrainerReady,
    WorldBroken,
)
from daisychain.core.world import Member, WorldPlan
from daisychain.errors import JobError, StorageError, WorldError
from daisychain.host.clock import SystemClock
from daisychain.host.job_folder import JOB_FILE, JobFolderSettings, finished_run, read_job
from daisychain.host.job_listing import Digests, list_job
from daisychain.host.ledger import Ledger, run_id_of, submission_of
from daisychain.host.state_folder import StateFolder
from daisychain.runtime.supervisor import Supervisor

LOOPBACK = "127.0.0.1"
FORMATION_S = 30.0
"""Bound on forming a world with oneself."""


@contextlib.contextmanager
def claim_alone(state: StateFolder, folder: Path, anew: bool = False) -> Iterator[LoadRun]:
    """Yield the first order for a run of the job in ``folder``, its run folder held until the end.

    The run follows on the last one that ended; one that was interrupted is taken up again from its
    checkpoints, unless it is to begin ``anew``. Raises `JobError` when the job cannot be trained,
    `StorageError` when the run folder cannot be made.
    """
    settings, wall = JobFolderSettings(), SystemClock().wall()
    try:
        if not (folder / JOB_FILE).is_file():
            raise JobError(folder.name, f"there is no {JOB_FILE} in it", "Name a job's folder")
        listing = list_job(folder, settings.bundle.files_max)
        job = read_job(folder, listing, Digests(settings.bundle.files_max), settings, wall)
    except OSError as error:
        raise JobError(folder.name, f"it cannot be read: {error.strerror}", "Check its permissions") from None
    if job.spec is None:
        where, _, message = job.problem.partition(": ")
        raise JobError(where, message)
    done = finished_run(folder, job.digest)
    before = max(Ledger(state.ledger).last_submission(job.digest), 0 if done is None else submission_of(done))
    run_id = run_id_of(job.digest, before + 1)
    node_id = NodeId(secrets.token_hex(16))
    # an agent of this state folder, or another `run`, may train the same run at this moment
    with state.runs.claimed(f"{run_id}-alone") as own:
        if anew:
            state.runs.forget_checkpoints(own.name)
        yield LoadRun(
            run_id,
            node_id,
            folder.name,
            str(folder.resolve()),
            str(own.resolve()),
            cache_folder=str(state.cache.resolve()),
        )


class Alone:
    """Plays the chain's part towards one trainer; its methods are the supervisor's events."""

    def __init__(self, tell: Callable[[Report], None]) -> None:
        """``tell`` is given every report of the trainer, for the progress display."""
        self._tell = tell
        self._heard: asyncio.Queue[Report | str] = asyncio.Queue(maxsize=1024)
        self._over = False

    async def reported(self, run_id: RunId, report: Report) -> None:
        """Take a report of the trainer."""
        if not self._over:
            await self._heard.put(report)

    async def exited(self, run_id: RunId, reason: str) -> None:
        """Take the trainer's end."""
        if not self._over:
            await self._heard.put(reason)

    async def train(self, supervisor: Supervisor, order: LoadRun) -> RunFinished:
        """Load, form a world of one, train to the end, and end the trainer.

        Raises `JobError` when the job cannot be trained, `WorldError` when the trainer ended or broke.
        """
        await supervisor.start(order)
        try:
            return await self._follow(supervisor, order)
        finally:
            self._over = True
            await supervisor.close("the run ended")

    async def _follow(self, supervisor: Supervisor, order: LoadRun) -> RunFinished:
        while True:
            report = await self._heard.get()
            if isinstance(report, str):
                raise WorldError(f"the trainer ended: {report}", f"Its log is {order.run_folder}/train.log")
            self._tell(report)
            match report:
                case TrainerReady():
                    supervisor.tell(order.run_id, FormWorld(_world_of_one(order, report), FORMATION_S))
                case LocalBlob(generation, _, blob):
                    supervisor.tell(order.run_id, PeerBlobs(generation, (blob,)))
                case RunFinished():
                    if report.unwritten:
                        raise StorageError(report.unwritten)
                    return report
                case RunFailed():
                    raise JobError(report.where, report.message, report.remedy)
                case WorldBroken():
                    raise WorldError(
                        f"the trainer's world of one broke: {report.reason}",
                        f"Its log is {order.run_folder}/train.log",
                    )
                case _:
                    pass


def _world_of_one(order: LoadRun, ready: TrainerReady) -> WorldPlan:
    generation = Generation(Term(1, order.node_id), 1, secrets.randbits(62))
    member = Member(order.node_id, "this machine", LOOPBACK, ready.capacity)
    return WorldPlan(generation, order.run_id, (member,), "a run on one machine")
