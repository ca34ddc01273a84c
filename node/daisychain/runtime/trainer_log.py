"""A trainer's output, copied into the run folder by a thread of its own, bounded in size."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import BinaryIO

from daisychain.host.storage import open_regular

CHUNK_BYTES = 1 << 16


class TrainerLog:
    """Copies a pipe into ``path`` until its end; before it passes ``max_bytes`` it moves to ``<path>.1``.

    So ``path`` always holds the newest, and at most twice ``max_bytes`` are kept, whatever the user's code
    prints. A full disk loses output, never
    the training: the pipe is read on.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._reading, self.child_end = os.pipe()
        self._thread = threading.Thread(target=self._copy, name="trainer-log", daemon=True)

    def start(self) -> None:
        """Close our copy of the child's end and begin to copy; call it once the child has its own."""
        os.close(self.child_end)
        self._thread.start()

    def abandon(self) -> None:
        """Close both ends: no child was started."""
        os.close(self.child_end)
        os.close(self._reading)

    def join(self, timeout_s: float) -> None:
        """Wait until everything that was printed is in the file, at most ``timeout_s``."""
        self._thread.join(timeout_s)

    def _copy(self) -> None:
        try:
            while data := os.read(self._reading, CHUNK_BYTES):
                with contextlib.suppress(OSError):
                    self._write(data)
        finally:
            os.close(self._reading)

    def _write(self, data: bytes) -> None:
        with self._open() as file:
            size = file.seek(0, os.SEEK_END)
            if size + len(data) <= self._max_bytes or size == 0:
                file.write(data)
                return
        self._path.replace(self._path.with_name(f"{self._path.name}.1"))
        with self._open() as file:
            file.write(data)

    def _open(self) -> BinaryIO:
        return open_regular(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
