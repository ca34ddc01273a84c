"""metrics.jsonl: one line for each committed step and each evaluation, in the order of their commits.

Line number ``t`` (from 1) is the run's tick ``t``: the file's length in lines is how far this node's
record goes. The lines travel with the state to a joiner, so every member ends with the whole record.
"""

from __future__ import annotations

import logging
import os
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from daisychain.errors import ProtocolError, StorageError
from daisychain.trainer.record.durable import remedy
from daisychain.trainer.record.trouble import Trouble

log = logging.getLogger(__name__)

FLUSH_EVERY_S = 0.5
"""Longest that a line waits in memory while steps go on."""

FLUSH_BYTES = 64 * 1024
"""Most that waits in memory while the disk takes it, and most that is written in one piece."""

PENDING_MAX_BYTES = 64 << 20
"""Most that waits in memory while the disk takes nothing: some 160,000 steps. Past it this node's record
would have a gap, so its trainer ends and says why; the other members go on."""

WHAT = "metrics lines"

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
    a longer pause. While the disk takes nothing they wait in memory, up to `PENDING_MAX_BYTES`. One
    thread uses it, but for `sync`. Opening an existing file keeps its whole lines and cuts off what a
    crash left after them. Raises `StorageError` when the file cannot be used.
    """

    def __init__(
        self, path: Path, clock: Callable[[], float] = time.monotonic, trouble: Trouble | None = None
    ) -> None:
        self._clock = clock
        self._path = path
        self._trouble = trouble or Trouble()
        self._pending: deque[bytes] = deque()
        self._tried_at = clock()
        self._refused = False  # the disk took nothing at the last try
        self._ends = array("Q")  # where each line ends in the file, those pending included
        self._written = 0  # bytes of whole lines in the file
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
        self._written = self._size
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
        """Record a commit. Costs microseconds, but for a write every `FLUSH_EVERY_S`.

        Raises `StorageError` when the disk takes nothing and no more can wait.
        """
        data = _encode(line) + b"\n"
        self._pending.append(data)
        self._note(line, len(data))
        full = self._size - self._written >= FLUSH_BYTES and not self._refused
        if full or self._clock() - self._tried_at >= FLUSH_EVERY_S:
            self._flush_or_wait()

    def flush(self) -> None:
        """Write what is pending; raises `StorageError` when it cannot be written."""
        self._tried_at = self._clock()
        self._refused = True
        while self._pending:
            lines: list[bytes] = []
            size = 0
            for line in self._pending:
                lines.append(line)
                size += len(line)
                if size >= FLUSH_BYTES:
                    break
            try:
                self._write(b"".join(lines))
            except StorageError as error:
                self._trouble.met(WHAT, error)
                raise
            for _ in lines:
                self._pending.popleft()
            self._written += size
        self._refused = False
        self._trouble.over(WHAT)

    def sync(self) -> None:
        """Make durable what is in the file; from any thread. Raises `StorageError`."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise StorageError(
                f"{self._path} cannot be made durable: {error.strerror}", "Check its disk."
            ) from None

    def truncate_after(self, tick: int) -> None:
        """Forget every line after the first ``tick``: commits that this node takes from another now."""
        if tick >= self.tick:
            return
        del self._ends[max(0, tick) :]
        pending = self._written + sum(map(len, self._pending))
        while self._pending and pending > self._size:
            pending -= len(self._pending.pop())
        self._written = min(self._written, self._size)
        os.ftruncate(self._fd, self._written)
        self._last_step = 0
        if self._ends:
            start = self._ends[-2] if len(self._ends) > 1 else 0
            self._last_step = parse_line(self._read(start).rstrip(b"\n")).step

    def lines_after(self, tick: int) -> bytes:
        """Return the lines after the first ``tick``, as they stand in the file once it is written."""
        self._flush_or_wait()
        if tick >= self.tick:
            return b""
        return self._read(self._ends[tick - 1] if tick > 0 else 0)

    def extend(self, data: bytes) -> None:
        """Append another node's lines that follow on this node's last one.

        Raises `ProtocolError`, and changes nothing, unless ``data`` is whole lines in which each step
        is the one after the last, and each evaluation stands right behind its step. Raises
        `StorageError` when the disk takes nothing and so much cannot wait.
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
            self._note(line, len(raw))
        self._flush_or_wait()

    def lines(self) -> Iterator[Line]:
        """Yield the lines in order, read back from the file, and those that wait after them."""
        self._flush_or_wait()
        start = 0
        for end in self._ends:
            if end > self._written:
                break
            yield parse_line(os.pread(self._fd, end - start, start).rstrip(b"\n"))
            start = end
        for raw in tuple(self._pending):
            yield parse_line(raw.rstrip(b"\n"))

    def close(self) -> None:
        """Write what is pending, if the disk takes it, and close the file; may be called again."""
        if self._fd < 0:
            return
        try:
            self.flush()
        except StorageError as error:
            log.warning("%d lines of the record are not written: %s", len(self._pending), error)
        os.close(self._fd)
        self._fd = -1

    def _flush_or_wait(self) -> None:
        """Write what is pending; while the disk takes nothing it waits, as long as its size allows."""
        try:
            self.flush()
        except StorageError as error:
            waiting = self._size - self._written
            if waiting > PENDING_MAX_BYTES:
                raise StorageError(
                    f"{error.message}; {waiting} bytes of the record wait in memory, and more cannot",
                    error.remedy,
                ) from None

    def _write(self, data: bytes) -> None:
        """Write ``data`` behind the whole lines in the file.

        Raises `StorageError`; a part of it may be there then, and counts for nothing.
        """
        view, at = memoryview(data), self._written
        try:
            while view:
                written = os.pwrite(self._fd, view, at)
                view, at = view[written:], at + written
        except OSError as error:
            raise StorageError(f"{self._path} cannot be written: {error.strerror}", remedy(error)) from None

    def _read(self, start: int) -> bytes:
        """Return everything from byte ``start`` on, in the file or waiting for it."""
        written = os.pread(self._fd, self._written - start, start) if start < self._written else b""
        waiting = b"".join(self._pending)
        return written + waiting[max(0, start - self._written) :]

    def _note(self, line: Line, length: int) -> None:
        self._ends.append(self._size + length)
        self._last_step = line.step
