"""When a checkpoint is written, and that nobody waits for it: the training thread only copies the state."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from daisychain.errors import JobError, StorageError
from daisychain.trainer.jobs.user_code import wants_memory
from daisychain.trainer.record.journal import Journal
from daisychain.trainer.record.trouble import Trouble
from daisychain.trainer.state.checkpoint_file import Head
from daisychain.trainer.state.checkpoints import Checkpoints
from daisychain.trainer.state.training_state import TrainingState
from daisychain.trainer.state.trees import Packed

WHAT = "checkpoints"


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """How often, and at what cost. One is due so long after the last one began:

        min(most_s, max(least_s, copy_factor * c, write_factor * w, b / bytes_per_s))

    where c is how long the last copy of the state took, w how long it took to hash and write it, and b its
    bytes. A chain that dies as a whole redoes at most that much, and w.

    Attributes:
        least_s: small states are written so often.
        copy_factor: the training waits for the copy: at most 1/200 of its time.
        write_factor: writing takes a part of one core and of the disk: at most 1/20 of its time.
        bytes_per_s: what a disk takes on average, for years: 1 MB/s is 86 GB a day at most.
        most_s: the largest states are written so often, one that slept in mid-write waits no longer.
        end_s: at an orderly end a checkpoint is written if the last took no longer than this.
    """

    least_s: float = 30.0
    copy_factor: float = 200.0
    write_factor: float = 20.0
    bytes_per_s: float = 1e6
    most_s: float = 1800.0
    end_s: float = 2.0

    def interval_s(self, copy_s: float, write_s: float, size_bytes: int) -> float:
        """Return how long after the beginning of a checkpoint the next one is due."""
        by_cost = max(self.copy_factor * copy_s, self.write_factor * write_s)
        return min(self.most_s, max(self.least_s, by_cost, size_bytes / self.bytes_per_s))


class CheckpointWriter:
    """Writes one node's checkpoints of one run, one at a time, each in a thread of its own.

    Everything but the writing itself belongs to the training thread. Before a checkpoint is in place the
    record is durable up to its tick, so what is restored always has its record.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        state: TrainingState,
        journal: Journal,
        trouble: Trouble,
        settings: CheckpointSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._checkpoints = checkpoints
        self._state = state
        self._journal = journal
        self._trouble = trouble
        self._settings = settings
        self._clock = clock
        self._due_at: float | None = None  # none before the first step of this life
        self._copy_s = self._write_s = 0.0
        self._written_tick = state.tick
        self._thread: threading.Thread | None = None
        self._distrusted = False

    def due(self) -> bool:
        """Whether the next checkpoint should begin now; asked after each commit, costs nothing."""
        if self._thread is not None:
            if self._thread.is_alive():
                return False
            self._thread = None
        now = self._clock()
        if self._distrusted:
            self._forget()
        if self._due_at is None:
            self._due_at = now + self._settings.least_s
        return now >= self._due_at

    def begin(self, head: Head) -> None:
        """Copy the state that ``head`` tells of and have it written; only when `due`."""
        packed = self._copy()
        if packed is not None:
            self._thread = threading.Thread(
                target=self._write, args=(head, packed), name="checkpoint", daemon=True
            )
            self._thread.start()

    def end(self, head: Head | None) -> None:
        """Wait for one that is being written; then write ``head``'s state here and now.

        Nothing is written for None, for a state that is on the disk already or is not sound, and when it
        would take too long: whoever asked for the end waits.
        """
        if self._thread is not None:
            self._thread.join(self._settings.end_s)
            if self._thread.is_alive():
                return
            self._thread = None
        if self._distrusted:
            self._forget()
        if head is None or head.tick == self._written_tick or not self._state.healed:
            return
        if self._write_s <= self._settings.end_s and (packed := self._copy()) is not None:
            self._write(head, packed)

    def distrust(self) -> None:
        """Forget what was written: the state it came from had drifted. The next one is due at once.

        One that is being written is forgotten when it is done: a sick disk must not hold up the training.
        """
        self._distrusted = True
        if self._thread is None or not self._thread.is_alive():
            self._thread = None
            self._forget()

    def _forget(self) -> None:
        self._checkpoints.clear()
        self._due_at = self._clock()
        self._distrusted = False

    def _copy(self) -> Packed | None:
        """Return the state as bytes, its record handed to the disk; None when that cannot be."""
        began_at = self._clock()
        self._due_at = began_at + self._settings.least_s
        try:
            self._journal.flush()
            packed = self._state.pack()
        except (StorageError, JobError) as error:
            self._trouble.met(WHAT, error)
            return None
        except Exception as error:
            if not wants_memory(error):
                raise
            self._trouble.met(WHAT, StorageError("memory does not suffice for a copy of the state", ""))
            return None
        self._copy_s = self._clock() - began_at
        return packed

    def _write(self, head: Head, packed: Packed) -> None:
        began_at = self._clock()
        try:
            self._journal.sync()
            self._checkpoints.save(head, packed)
        except StorageError as error:
            self._trouble.met(WHAT, error)
        else:
            self._trouble.over(WHAT)
            self._written_tick = head.tick
        self._write_s = self._clock() - began_at
        size_bytes = packed.payload.numel()
        self._due_at = began_at + self._settings.interval_s(self._copy_s, self._write_s, size_bytes)
