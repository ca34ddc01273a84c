"""What the person at this machine asks for: status, submit, cancel, logs. Knows nothing of HTTP."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from daisychain.core.events import CancelAsked, Event, SubmitAsked
from daisychain.core.jobs import JobCard, JobState
from daisychain.core.view import ChainView
from daisychain.errors import AgentError
from daisychain.host.clock import Clock
from daisychain.host.job_folder import FoundJob
from daisychain.host.ledger import run_id_of, submission_of
from daisychain.host.state_folder import StateFolder
from daisychain.runtime.agent_status import AgentStatus, LogChunk, Submitted
from daisychain.runtime.scanner import Scanner

LOG_CHUNK_BYTES = 1 << 18
"""Most of a log in one answer."""


@dataclass(frozen=True, slots=True)
class UserRequests:
    """Does what the CLI asks of the agent.

    Attributes:
        state: the node's own folder.
        scanner: the jobs in the jobs folder.
        view: the machine's snapshot of this moment.
        status: the same with the agent's own facts.
        post: gives the machine an event.
        clock: for the time of a submission.
    """

    state: StateFolder
    scanner: Scanner
    view: Callable[[], ChainView]
    status: Callable[[], AgentStatus]
    post: Callable[[Event], None]
    clock: Clock

    def submit(self, name: str) -> Submitted:
        """Queue the job in the folder ``name``, again when its last run ended. Raises `AgentError`."""
        job = self.scanner.named(name)
        if job is None:
            raise AgentError(
                f"there is no job {name!r} in the jobs folder (or it is still being copied in)",
                "A job is a folder with a job.yaml; see `daisychain jobs`",
            )
        if job.problem:
            raise AgentError(
                f"{name} cannot be trained: {job.problem}", "Mend it; it is then queued by itself"
            )
        runs = [card for card in self.view().jobs if card.digest == job.digest]
        for card in runs:
            if not card.state.ended:
                return Submitted(card, already=True)
        submission = max((submission_of(card.run_id) for card in runs), default=0) + 1
        run_id = run_id_of(job.digest, submission)
        card = JobCard(run_id, name, job.digest, self.clock.wall(), JobState.QUEUED, "", self._min_nodes(job))
        self.post(SubmitAsked(card))
        return Submitted(card, already=False)

    def _min_nodes(self, job: FoundJob) -> int:
        return max(self.scanner.min_nodes, job.spec.min_nodes if job.spec is not None else 1)

    def cancel(self, name: str) -> JobCard:
        """Cancel the newest unended run of this job name or run id. Raises `AgentError`."""
        card = self._newest(name, lambda card: not card.state.ended)
        if card is None:
            raise AgentError(f"no queued or running job {name!r}", "See `daisychain jobs` for what there is")
        self.post(CancelAsked(card.run_id))
        return card

    def logs(self, name: str, offset: int) -> LogChunk:
        """Return the log of the newest run of this job name or run id on this node, from ``offset``.

        A negative offset counts from the end. Raises `AgentError`.
        """
        card = self._newest(name, lambda card: True)
        if card is None:
            raise AgentError(f"no run of a job {name!r} is known", "See `daisychain jobs` for what there is")
        path = self.state.runs.log(card.run_id)
        text, end = _read_from(path, offset)
        return LogChunk(card.run_id, text, end, card.state.ended)

    def _newest(self, name: str, fits: Callable[[JobCard], bool]) -> JobCard | None:
        cards = [card for card in self.view().jobs if name in (card.name, card.run_id) and fits(card)]
        order = {JobState.RUNNING: 1}  # what runs now comes before what waits
        return max(cards, key=lambda card: (order.get(card.state, 0), card.submitted_at), default=None)


def _read_from(path: Path, offset: int) -> tuple[str, int]:
    """Return at most LOG_CHUNK_BYTES of text from ``offset``, and where it ends; nothing when absent.

    A file shorter than ``offset`` was turned over: it is read from its start.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = max(0, size + offset) if offset < 0 else (offset if offset <= size else 0)
            file.seek(start)
            data = file.read(LOG_CHUNK_BYTES)
    except OSError:
        return "", 0
    return data.decode("utf-8", "replace"), start + len(data)
