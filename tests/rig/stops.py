"""Where a trainer halts: named points, and the board on which a test asks for them.

A trainer that the rig started (`trainer_entry`) stands still where somebody wants it to, and says so,
until it is released or dead. So a fault lands where it was addressed.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

ACCEPT_S = 0.2
LINE_MAX_BYTES = 4096


class Point(StrEnum):
    """A place in a trainer's life where it can be halted.

    The step that goes with a point is the number of committed steps on that trainer.
    """

    LOADING = "loading"  # its orders came, nothing of the job is read
    FORMING = "forming"  # a plan came, its address is not yet published
    RECONCILING = "reconciling"  # gloo is connected
    TRANSFERRING = "transferring"  # a state is about to be passed; every member halts here, whatever its part
    COMPUTING = "computing"  # before forward
    EXCHANGING = "exchanging"  # its gradient's sums are under way
    PREPARED = "prepared"  # every sum is complete here, its rider is not issued
    RIDING = "riding"  # its rider is issued, its completion not yet seen: the others may see theirs
    UNSEEN = "unseen"  # the rider completed; once released, this rank loses its world before seeing that
    SAVING = "saving"  # a checkpoint is due, the state is about to be copied for it
    EVALUATING = "evaluating"  # before the held-out data
    FINISHING = "finishing"  # before the result is written
    HOLDING = "holding"  # the result is written


@dataclass(frozen=True, slots=True)
class Reached:
    """A trainer stands at a point.

    Attributes:
        step: committed on that trainer.
        pid: of the trainer.
        at: Unix seconds of this machine.
    """

    node: str
    point: Point
    step: int
    pid: int
    at: float


class Stop:
    """One wish: that a trainer of ``node`` halts when it next passes ``point`` at ``step`` or later."""

    def __init__(self, board: Board, number: int, node: str, point: Point, step: int) -> None:
        self.number = number
        self.node = node
        self.point = point
        self.step = step
        self.found: Reached | None = None
        self.by: _Trainer | None = None
        self._board = board

    def reached(self, timeout_s: float) -> Reached:
        """Return where the trainer stands, once it does; `AssertionError` past ``timeout_s``."""
        self._board.wait(
            lambda: self.found is not None,
            timeout_s,
            lambda: f"{self.node} did not come to {self.point} at step {self.step}; {self._board.story()}",
        )
        assert self.found is not None
        return self.found

    @property
    def held(self) -> bool:
        """Whether the trainer stands there at this moment: it lives, and was not released."""
        return self.by is not None and self.number in self.by.holding and not self.by.gone

    def release(self) -> None:
        """Let the trainer go on; a wish that was not met is withdrawn."""
        self._board.release(self)


class Board:
    """Takes the trainers' connections on a Unix socket, keeps the wishes; a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()
        self._wishes: list[Stop] = []
        self._trainers: list[_Trainer] = []
        self._said: list[str] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(16)
        self._listener.settimeout(ACCEPT_S)
        self._closing = False
        self._thread = threading.Thread(target=self._accept, name="rig-board", daemon=True)
        self._thread.start()

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def stop_at(self, node: str, point: Point, step: int = 0) -> Stop:
        """Wish that the next trainer of ``node`` that passes ``point`` at ``step`` or later halts there."""
        with self._changed:
            stop = Stop(self, next(self._numbers), node, point, step)
            self._wishes.append(stop)
            for trainer in self._trainers:
                if trainer.node == node:
                    trainer.tell({"stop": stop.number, "point": point.value, "step": step})
            return stop

    def release(self, stop: Stop) -> None:
        """Let whoever is held by ``stop`` go on, and withdraw it."""
        with self._changed:
            if stop in self._wishes:
                self._wishes.remove(stop)
            for trainer in self._trainers:
                if trainer.node == stop.node:
                    trainer.holding.discard(stop.number)
                    trainer.tell({"go": stop.number})

    def pid_of(self, node: str) -> int | None:
        """Return the process id of the node's living trainer; None when it has none."""
        with self._changed:
            living = [each.pid for each in self._trainers if each.node == node and not each.gone]
            return living[-1] if living else None

    def where(self, node: str, timeout_s: float = 1.0) -> tuple[str, int] | None:
        """Return (phase, committed steps) of the node's trainer now; None when it does not say so in time."""
        with self._changed:
            living = [each for each in self._trainers if each.node == node and not each.gone]
            if not living:
                return None
            trainer = living[-1]
            trainer.place = None
            trainer.tell({"where": True})
        with contextlib.suppress(AssertionError):
            self.wait(lambda: trainer.place is not None, timeout_s, lambda: "")
        return trainer.place

    def wait(self, condition: Callable[[], bool], timeout_s: float, what: Callable[[], str]) -> None:
        """Wait for a condition on what the trainers said."""
        with self._changed:
            if not self._changed.wait_for(condition, timeout_s):
                raise AssertionError(f"{what()}: still so after {timeout_s} s")

    def story(self) -> str:
        """Return the last things that trainers said, for a failed test."""
        return "; ".join(self._said[-12:]) or "no trainer has come to any stop"

    def close(self) -> None:
        """Release everybody and end the threads. Idempotent."""
        self._closing = True
        self._thread.join()
        with self._changed:
            trainers = list(self._trainers)
        for trainer in trainers:
            trainer.hang_up()
        for trainer in trainers:
            trainer.thread.join()
        self._listener.close()
        self.path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while not self._closing:
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            connection.settimeout(None)
            trainer = _Trainer(connection, self._hear, self._lost)
            trainer.thread.start()

    def _hear(self, trainer: _Trainer, said: dict[str, Any]) -> None:
        with self._changed:
            if "node" in said:
                trainer.node, trainer.pid = said["node"], said["pid"]
                self._trainers.append(trainer)
                for stop in self._wishes:
                    if stop.node == trainer.node and stop.found is None:
                        trainer.tell({"stop": stop.number, "point": stop.point.value, "step": stop.step})
                trainer.tell({"begin": True})
            elif "at" in said:
                self._halted(trainer, said)
            elif "phase" in said:
                trainer.place = (said["phase"], said["step"])
            self._changed.notify_all()

    def _halted(self, trainer: _Trainer, said: dict[str, Any]) -> None:
        where = f"{trainer.node} at {said['point']}, step {said['step']}"
        for stop in self._wishes:
            if stop.number == said["at"]:
                found = Reached(trainer.node, Point(said["point"]), said["step"], trainer.pid, time.time())
                stop.found, stop.by = found, trainer
                trainer.holding.add(stop.number)
                self._wishes.remove(stop)
                self._said.append(where)
                return
        trainer.tell({"go": said["at"]})  # withdrawn meanwhile

    def _lost(self, trainer: _Trainer) -> None:
        with self._changed:
            trainer.gone = True
            self._said.append(f"{trainer.node}'s trainer {trainer.pid} is gone")
            self._changed.notify_all()


class _Trainer:
    """One trainer's connection."""

    def __init__(
        self,
        connection: socket.socket,
        hear: Callable[[_Trainer, dict[str, Any]], None],
        lost: Callable[[_Trainer], None],
    ) -> None:
        self.node = ""
        self.pid = 0
        self.gone = False
        self.holding: set[int] = set()
        self.place: tuple[str, int] | None = None
        self.thread = threading.Thread(target=self._read, name="rig-trainer", daemon=True)
        self._connection = connection
        self._hear = hear
        self._lost = lost

    def tell(self, words: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._connection.sendall(json.dumps(words).encode() + b"\n")

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _read(self) -> None:
        lines = self._connection.makefile("rb")
        with self._connection, lines, contextlib.suppress(OSError, ValueError):
            while line := lines.readline(LINE_MAX_BYTES):
                self._hear(self, json.loads(line))
        self._lost(self)
