"""The checkpoints of one run on this node's disk: the newest two, and how the newest intact one is taken."""

from __future__ import annotations

import contextlib
import logging
import math
import shutil
from dataclasses import dataclass
from pathlib import Path

from daisychain.errors import ProtocolError, StorageError
from daisychain.trainer.record.durable import remedy
from daisychain.trainer.record.journal import Journal
from daisychain.trainer.state.checkpoint_file import Head, load, save
from daisychain.trainer.state.training_state import TrainingState
from daisychain.trainer.state.trees import Packed

log = logging.getLogger(__name__)

KEPT = 2
"""Checkpoints kept: should the newest turn out damaged, the one before it is there."""

UNUSABLE = "unusable"
"""The last file that was passed over is kept under this name, for whoever wants to know."""


@dataclass(frozen=True, slots=True)
class Restored:
    """How a run begins on this node.

    Attributes:
        head: of the checkpoint that was taken; None = the run begins at step 0.
        notes: what was found and could not be used, and why.
    """

    head: Head | None
    notes: tuple[str, ...]


class Checkpoints:
    """A folder of checkpoints, made with the first one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, head: Head, packed: Packed) -> None:
        """Write a checkpoint and remove all but it and the newest before it. Raises `StorageError`."""
        path = self._folder / f"{head.tick:012d}.state"
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{self._folder} cannot be made: {error.strerror}", remedy(error)) from None
        save(path, head, packed)
        others = [other for other in self._newest_first() if other != path]
        before = [other for other in others if other.name < path.name][: KEPT - 1]
        for other in others:
            if other not in before:  # older, or of steps that this node has no longer
                _remove(other)

    def restore(self, state: TrainingState, journal: Journal) -> Restored:
        """Have ``state`` and ``journal`` hold the newest intact checkpoint of this very run.

        Whatever is torn, altered, of another run, model or version, or ahead of the record, is set aside
        with the reason; the next older one is taken. Without any the run begins anew.
        """
        initial, notes = state.pack(), list[str]()
        for scratch in self._folder.glob(".*.new"):  # this node died while it wrote
            _remove(scratch)
        for path in self._newest_first():
            try:
                head = self._take(path, state, journal)
            except (StorageError, ProtocolError) as error:
                notes.append(f"checkpoint {path.name} was passed over: {error.message}")
                log.warning("%s", notes[-1])
                self._set_aside(path)
                if not state.healed or state.tick:
                    state.unpack(initial.header, initial.payload)
                continue
            journal.truncate_after(head.tick)
            return Restored(head, tuple(notes))
        journal.truncate_after(0)
        return Restored(None, tuple(notes))

    def clear(self) -> None:
        """Remove every checkpoint: the run has ended here, or its state cannot be trusted."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _newest_first(self) -> list[Path]:
        return sorted(self._folder.glob("*.state"), reverse=True)

    def _take(self, path: Path, state: TrainingState, journal: Journal) -> Head:
        """Have ``state`` hold the checkpoint in ``path``; raises with the reason when it must not."""
        head, packed = load(path, state.payload_max_bytes())
        if head.run_id != state.run_id:
            raise StorageError(f"it belongs to run {head.run_id[:40]!r}")
        if head.layout != state.layout():
            raise StorageError("it is of another model: names, shapes or dtypes of its tensors differ")
        if head.tick > journal.tick:
            raise StorageError(f"it is of tick {head.tick}, and the record ends at {journal.tick}")
        state.unpack(packed.header, packed.payload)
        if (state.tick, state.step) != (head.tick, head.step):
            raise StorageError(f"it holds tick {state.tick} and tells of {head.tick}")
        if not all(map(math.isfinite, state.sketch())):
            raise StorageError("its state is not finite")
        return head

    def _set_aside(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            path.replace(self._folder / UNUSABLE)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
