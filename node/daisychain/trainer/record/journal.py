"""metrics.jsonl: one line for each committed step and each evaluation, in the order of their commits.

Line number ``t`` (from 1) is the run's tick ``t``: the file's length in lines is how far this node's
record goes. The lines travel with the state to a joiner, so every member ends with the whole record.
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from daisychain.errors import ProtocolError, StorageError

FLUSH_EVERY_S = 0.5
"""Longest that a line waits in memory while steps go on."""

FLUSH_BYTES = 64 * 1024
"""Most that waits in memory: bounds the work of one flush."""

LINE_MAX_BYTES = 64 * 1024
"""Longest line accepted from a peer: a step of a world of sixteen needs some 400 bytes."""


class WorldInfo(msgspec.Struct, frozen=True):
    """The world that committed a step.

    Attributes:
        generation: as text, ``term.counter``.
        size: its number of members.
        coordinator: the name of the coordinator's node.
        shares: units (samples or granules) each rank took, in rank order.
    """

    generation: str
    size: int
    coordinator: str
    shares: tuple[int, ...]


class StepLine(msgspec.Struct, frozen=True):
    """One committed training step.

    Attributes:
        step: committed steps, this one included: the first line says 1.
        epoch: that the step belongs to, from 0.
        loss: mean over the global batch; None when it is not finite.
        samples: of the global batch.
        step_s: seconds from the step's beginning to its commit.
        world: who did it.
        at: Unix seconds of the commit, by the clock of the node that wrote the line.
    """

    step: int
    epoch: int
    loss: float | None
    samples: int
    step_s: float
    world: WorldInfo
    at: float


class Evaluation(msgspec.Struct, frozen=True):
    """What the held-out split said; None stands for a number that is not finite."""

    loss: float | None
    metrics: dict[str, float | None]


class EvaluationLine(msgspec.Struct, frozen=True):
    """One committed evaluation, after ``step`` committed steps."""

    step: int
    evaluation: Evaluation
    at: float = 0.0


Line = StepLine | EvaluationLine

_encode = msgspec.json.Encoder().encode
_step_line = msgspec.json.Decoder(StepLine)
_evaluation_line = msgspec.json.Decoder(EvaluationLine)


def parse_line(data: bytes) -> Line:
    """Return the line in ``data`` (without its newline); raises `ProtocolError` when it is none."""
    if len(data) > LINE_MAX_BYTES:
        raise ProtocolError(f"a metrics line of {len(data)} bytes is over the limit of {LINE_MAX_BYTES}")
    try:
        return _evaluation_line.decode(data) if b'"evaluation":' in data else _step_line.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolError(f"not a metrics line: {error}") from None


class Journal:
    """This node's record of a run, over one file.

    Lines are buffered and written at most every `FLUSH_EVERY_S` while steps come; call `flush` before
    a longer pause. One thread uses it. Opening an existing file keeps its whole lines and cuts off
    what a crash left after them. Raises `StorageError` when the file cannot be used.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._path = path
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._flushed_at = clock()
        self._ends = array("Q")  # where each line ends in the file, those pending included
        self._last_step = 0
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageError(f"{path} cannot be opened: {error.strerror}") from None
        try:
            for raw in path.read_bytes().splitlines(keepends=True):
                line = parse_line(raw.rstrip(b"\n")) if raw.endswith(b"\n") else None
                if line is None:
                    break
                self._note(line, len(raw))
        except ProtocolError:
            pass  # the lines before stand; the rest is cut off
        except OSError as error:
            os.close(self._fd)
            raise StorageError(f"{path} cannot be read: {error.strerror}") from None
        os.ftruncate(self._fd, self._size)

    @property
    def tick(self) -> int:
        """The number of lines: commits recorded, steps and evaluations together."""
        return len(self._ends)

    @property
    def last_step(self) -> int:
        """The step of the last line; 0 when there is none."""
        return self._last_step

    @property
    def _size(self) -> int:
        return self._ends[-1] if self._ends else 0

    def append(self, line: Line) -> None:
        """Record a commit. Costs microseconds, but for a write every `FLUSH_EVERY_S`."""
        data = _encode(line) + b"\n"
        self._pending.append(data)
        self._pending_bytes += len(data)
        self._note(line, len(data))
        if self._pending_bytes >= FLUSH_BYTES or self._clock() - self._flushed_at >= FLUSH_EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Write what is pending; raises `StorageError` when it cannot be written."""
        data = b"".join(self._pending)
        at = self._size - len(data)
        view = memoryview(data)
        try:
            while view:
                written = os.pwrite(self._fd, view, at)
                view, at = view[written:], at + written
        except OSError as error:
            raise StorageError(
                f"{self._path} cannot be written: {error.strerror}", "Make room on its disk."
            ) from None
        self._pending.clear()
        self._pending_bytes = 0
        self._flushed_at = self._clock()

    def truncate_after(self, tick: int) -> None:
        """Forget every line after the first ``tick``: commits that this node takes from another now."""
        if tick >= self.tick:
            return
        self.flush()
        del self._ends[max(0, tick) :]
        os.ftruncate(self._fd, self._size)
        self._last_step = 0
        if self._ends:
            start = self._ends[-2] if len(self._ends) > 1 else 0
            self._last_step = parse_line(os.pread(self._fd, self._size - start, start).rstrip(b"\n")).step

    def lines_after(self, tick: int) -> bytes:
        """Return the lines after the first ``tick``, as they stand in the file."""
        self.flush()
        if tick >= self.tick:
            return b""
        start = self._ends[tick - 1] if tick > 0 else 0
        return os.pread(self._fd, self._size - start, start)

    def extend(self, data: bytes) -> None:
        """Append another node's lines that follow on this node's last one.

        Raises `ProtocolError`, and changes nothing, unless ``data`` is whole lines in which each step
        is the one after the last, and each evaluation stands right behind its step.
        """
        if not data:
            return
        if not data.endswith(b"\n"):
            raise ProtocolError("metrics lines from a peer end in the middle of a line")
        step, lines = self._last_step, []
        for raw in data[:-1].split(b"\n"):
            line = parse_line(raw)
            expected = step + 1 if isinstance(line, StepLine) else step
            if line.step != expected:
                raise ProtocolError(f"metrics lines from a peer jump from step {step} to {line.step}")
            step = line.step
            lines.append((line, raw + b"\n"))
        for line, raw in lines:
            self._pending.append(raw)
            self._pending_bytes += len(raw)
            self._note(line, len(raw))
        self.flush()

    def lines(self) -> Iterator[Line]:
        """Yield the lines in order, read back from the file."""
        self.flush()
        start = 0
        for end in self._ends:
            yield parse_line(os.pread(self._fd, end - start, start).rstrip(b"\n"))
            start = end

    def close(self) -> None:
        """Write what is pending and close the file; may be called again."""
        if self._fd < 0:
            return
        self.flush()
        os.close(self._fd)
        self._fd = -1

    def _note(self, line: Line, length: int) -> None:
        self._ends.append(self._size + length)
        self._last_step = line.step
