"""What the person at this machine asks for: submit, retry, cancel, pause, logs. Knows nothing of HTTP."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from daisychain.core.events import CancelAsked, Event, PauseAsked, SubmitAsked
from daisychain.core.job_names import apart, called
from daisychain.core.jobs import JobCard, JobState
from daisychain.core.queue import age
from daisychain.core.view import ChainView
from daisychain.errors import AgentError
from daisychain.host.clock import Clock
from daisychain.host.ledger import run_id_of, submission_of
from daisychain.host.state_folder import StateFolder
from daisychain.host.storage import open_regular
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
        card = self.scanner.wishes(job.wishes(JobCard(run_id, name, job.digest, self.clock.wall())))
        self.post(SubmitAsked(card))
        return Submitted(card, already=False)

    def retry(self, name: str) -> JobCard:
        """Queue the newest ended run of this job again, as a new run. Raises `AgentError`."""
        cards = self.view().jobs
        ended = [card for card in called(cards, name) if card.state.ended]
        if not ended:
            raise AgentError(
                f"no ended run of a job {name!r}", "See `daisychain jobs`; a new job is queued by itself"
            )
        last = max(ended, key=age)
        going = [card for card in cards if card.digest == last.digest and not card.state.ended]
        if going:
            raise AgentError(
                f"{name} is {going[0].state} already (run {going[0].run_id})", "Cancel that one to begin anew"
            )
        job = self.scanner.holding(last.digest)
        if job is not None and job.problem:
            raise AgentError(
                f"{name} cannot be trained: {job.problem}", "Mend it; it is then queued by itself"
            )
        run_id = run_id_of(
            last.digest, 1 + max(submission_of(c.run_id) for c in cards if c.digest == last.digest)
        )
        card = last.again(run_id, self.clock.wall())
        self.post(SubmitAsked(card))
        return card

    def cancel(self, name: str) -> JobCard:
        """Cancel the unended run of this job. Raises `AgentError`."""
        card = self._going(name, tuple(state for state in JobState if not state.ended))
        self.post(CancelAsked(card.run_id))
        return card

    def pause(self, name: str) -> JobCard:
        """Have this job's queued or running run wait. Raises `AgentError`."""
        card = self._going(name, (JobState.QUEUED, JobState.RUNNING))
        self.post(PauseAsked(card.run_id, paused=True))
        return card

    def resume(self, name: str) -> JobCard:
        """Have this job's paused run go on at its place in the queue. Raises `AgentError`."""
        card = self._going(name, (JobState.PAUSED,))
        self.post(PauseAsked(card.run_id, paused=False))
        return card

    def _going(self, name: str, states: tuple[JobState, ...]) -> JobCard:
        """Return the one run in one of ``states`` that ``name`` means."""
        cards = [card for card in called(self.view().jobs, name) if card.state in states]
        if not cards:
            *others, last = [state.value for state in states]
            words = f"{', '.join(others)} or {last}" if others else last
            raise AgentError(f"no {words} job {name!r}", "See `daisychain jobs` for what there is")
        if len(cards) > 1:
            names = ", ".join(
                f"{apart(card.name, card.digest)} ({card.state}, run {card.run_id})" for card in cards
            )
            raise AgentError(f"{len(cards)} jobs are called {name!r}: {names}", "Say which of them")
        return cards[0]

    def logs(self, name: str, offset: int) -> LogChunk:
        """Return the log of the newest run of this job name or run id on this node, from ``offset``.

        A negative offset counts from the end. Raises `AgentError`.
        """
        card = self._newest(name)
        if card is None:
            raise AgentError(f"no run of a job {name!r} is known", "See `daisychain jobs` for what there is")
        path = self.state.runs.log(card.run_id)
        text, end = _read_from(path, offset)
        return LogChunk(card.run_id, text, end, card.state.ended)

    def _newest(self, name: str) -> JobCard | None:
        order = {JobState.RUNNING: 1}  # what runs now comes before what waits
        return max(
            called(self.view().jobs, name),
            key=lambda card: (order.get(card.state, 0), card.submitted_at),
            default=None,
        )


def _read_from(path: Path, offset: int) -> tuple[str, int]:
    """Return at most LOG_CHUNK_BYTES of text from ``offset``, and where it ends; nothing when absent.

    A file shorter than ``offset`` was turned over: it is read from its start.
    """
    try:
        with open_regular(path, os.O_RDONLY) as file:
            size = file.seek(0, os.SEEK_END)
            start = max(0, size + offset) if offset < 0 else (offset if offset <= size else 0)
            file.seek(start)
            data = file.read(LOG_CHUNK_BYTES)
    except OSError:
        return "", 0
    return data.decode("utf-8", "replace"), start + len(data)
