"""The folders of runs in a state folder: each one's log, journal and checkpoints; bounded in number."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from daisychain.core.orders import CHECKPOINT_FOLDER
from daisychain.errors import StorageError
from daisychain.host.locks import try_lock
from daisychain.host.storage import make_folder

RUNS_KEPT = 20
"""Run folders kept: beyond that those without checkpoints go first, then the oldest."""

CLAIMS_MAX = 16
"""Most runs of one job that go on side by side on one state folder, each alone."""


class RunFolders:
    """``runs/`` of one state folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def folder(self, name: str) -> Path:
        """Return the run's own folder, made when missing; beyond RUNS_KEPT others are removed.

        Raises `StorageError`.
        """
        folder = self._path / name
        make_folder(folder)
        with contextlib.suppress(OSError):
            os.utime(folder)
            others = sorted((entry for entry in self._path.iterdir() if entry != folder), key=_worth)
            for old in others[: max(0, len(others) - (RUNS_KEPT - 1))]:
                shutil.rmtree(old, ignore_errors=True)
        return folder

    @contextlib.contextmanager
    def claimed(self, name: str) -> Iterator[Path]:
        """Yield a folder for ``name`` that no other living process has claimed; the same one each time.

        While the first is taken it is the second, and so on. Raises `StorageError`.
        """
        folder, lock = self._claim(name)
        try:
            yield folder
        finally:
            os.close(lock)

    def _claim(self, name: str) -> tuple[Path, int]:
        for number in range(1, CLAIMS_MAX + 1):
            folder = self.folder(name if number == 1 else f"{name}-{number}")
            try:
                lock = try_lock(folder / "claimed")
            except OSError as error:
                raise StorageError(
                    f"{folder} cannot be used: {error.strerror}", "Check its disk and permissions."
                ) from None
            if lock is not None:
                return folder, lock
        raise StorageError(
            f"{CLAIMS_MAX} processes train this job on the state folder {self._path.parent}",
            "Stop some, or give this one its own folder with --state-folder.",
        )

    def log(self, name: str) -> Path:
        """Return where the run's log is, whether there is one or not."""
        return self._path / name / "train.log"

    def forget_checkpoints(self, name: str) -> None:
        """Remove the run's checkpoints, if there are any: it has ended, or is to begin anew."""
        shutil.rmtree(self._path / name / CHECKPOINT_FOLDER, ignore_errors=True)


def _worth(folder: Path) -> tuple[bool, float]:
    """Sort key: what is the least missed first."""
    return any((folder / CHECKPOINT_FOLDER).glob("*.state")), folder.stat().st_mtime
