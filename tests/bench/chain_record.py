"""What a node of the chain recorded: its journal while the run goes on, and when its trainer was ready."""

from __future__ import annotations

import re
from collections import deque
from datetime import datetime
from pathlib import Path

from bench.steps import StepLine
from daisychain.errors import ProtocolError
from daisychain.trainer.record import journal

TAIL_BYTES = 1 << 18
"""Where reading begins: some 900 lines back. A trial that takes longer keeps what it has read."""

KEPT = 1_000
"""Newest steps kept: looking through them must cost little while a recovery is measured."""

_READY = re.compile(r"^(\S+ \S+) INFO ready:", re.MULTILINE)


class ChainRecord:
    """The record of one node of a chain that has had one run, read as it grows."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._offset = 0
        self._steps: deque[StepLine] = deque(maxlen=KEPT)

    def steps(self) -> list[StepLine]:
        """Return the newest steps in the journal; those of its last half second may be missing."""
        path = self._find("metrics.jsonl")
        if path is None:
            return []
        size = path.stat().st_size
        if size > self._offset or size < self._offset:
            self._read(path, size)
        return list(self._steps)

    def _read(self, path: Path, size: int) -> None:
        """Take in what is new; begin near the end when the file is not the one that was read before."""
        anew = size < self._offset or self._offset == 0
        start = max(0, size - TAIL_BYTES) if anew else self._offset
        with path.open("rb") as file:
            file.seek(start)
            data = file.read()
        end = data.rfind(b"\n") + 1
        lines = data[:end].splitlines()
        try:
            found = [journal.parse_line(line) for line in (lines[1:] if anew and start else lines)]
        except ProtocolError:  # it was cut and has grown beyond where we were
            found = []
        steps = [
            StepLine(line.at, line.step, line.world.size, line.world.generation, line.step_s)
            for line in found
            if isinstance(line, journal.StepLine)
        ]
        follows = not steps or not self._steps or steps[0].step == self._steps[-1].step + 1
        if anew or not follows or (lines and not found):
            self._steps.clear()
            self._offset = 0
            if not anew:
                self._read(path, size)
                return
        self._steps.extend(steps)
        self._offset = start + end

    def ready_at(self) -> float:
        """Return when its trainer was ready last, in Unix seconds; 0 when none was yet."""
        path = self._find("train.log")
        told = [] if path is None else _READY.findall(path.read_text(errors="replace"))
        return datetime.strptime(told[-1], "%Y-%m-%d %H:%M:%S,%f").timestamp() if told else 0.0

    def _find(self, name: str) -> Path | None:
        return next(iter((self._state / "runs").glob(f"*/{name}")), None)
