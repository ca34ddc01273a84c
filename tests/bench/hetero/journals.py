"""Marks of a chain that trains, read from a node's journal as it grows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.hetero.marks import Mark

Line = dict[str, Any]


class JournalTail:
    """The newest run in a node's state folder.

    Attributes:
        lines: of its journal so far: steps and evaluations; those of its last half second may be missing.
    """

    def __init__(self, state: Path, counts: Callable[[Line], bool] = lambda _: True) -> None:
        """``counts``: which steps are marks; all the samples up to them count."""
        self._state = state
        self._counts = counts
        self._path: Path | None = None
        self._offset = 0
        self.lines: list[Line] = []

    def marks(self) -> list[Mark]:
        """Return the marks of every step that counts."""
        self.read()
        samples, found = 0, []
        for line in self.lines:
            if "samples" in line:
                samples += line["samples"]
                if self._counts(line):
                    found.append(Mark(line["at"], samples))
        return found

    def read(self) -> None:
        """Take in what is new, or another run's file when there is a newer one."""
        paths = list(self._state.glob("runs/*/metrics.jsonl"))
        if not paths:
            return
        newest = max(paths, key=lambda path: path.stat().st_mtime)
        size = newest.stat().st_size
        if newest != self._path or size < self._offset:
            self._path, self._offset, self.lines = newest, 0, []
        if size == self._offset:
            return
        with newest.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        self.lines += [json.loads(line) for line in whole.splitlines()]
