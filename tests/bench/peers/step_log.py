"""The log of committed steps that a competitor's training program writes, one JSON line each."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from bench.steps import StepLine


class StepWriter:
    """The training program's end of it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def ready(self) -> None:
        """Note that this process is loaded and may be taken into a world."""
        self._write({"ready": time.time()})

    def committed(self, line: StepLine) -> None:
        """Note a committed step."""
        self._write(dataclasses.asdict(line))

    def _write(self, line: dict[str, object]) -> None:
        os.write(self._file, (json.dumps(line) + "\n").encode())


class StepLog:
    """The benchmark's end of it: one node's log, read as it grows.

    Attributes:
        steps: all of them so far.
        ready_at: when a process of that node was ready last; 0 when none was.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.steps: list[StepLine] = []
        self.ready_at = 0.0

    def read(self) -> Sequence[StepLine]:
        """Take in what was written since, and return every step so far."""
        if not self._path.exists():
            return self.steps
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in map(json.loads, whole.splitlines()):
            if "ready" in line:
                self.ready_at = line["ready"]
            else:
                self.steps.append(StepLine(**line))
        return self.steps
