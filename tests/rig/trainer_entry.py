"""``python -m rig.trainer_entry BOARD NODE CLOCK_OFFSET_S CHECKPOINT_S FD``: a trainer that halts where told.

CHECKPOINT_S: its checkpoints come so often at most; 0 = as often as the agent says.

It wraps the trainer's seams: the phases that it enters, the waits for others, and the loading of the job. The
program, its threads and its sockets are the product's own.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from daisychain.core.orders import LoadRun
from daisychain.core.reports import Phase
from daisychain.errors import WorldError
from daisychain.trainer import __main__ as program
from daisychain.trainer.control import Desk
from daisychain.trainer.phases import PhaseClock
from rig.clock import shift_clock
from rig.stops import Point

_ENTERED = {
    Phase.FORMING: Point.FORMING,
    Phase.RECONCILING: Point.RECONCILING,
    Phase.COMPUTING: Point.COMPUTING,
    Phase.COMMITTING: Point.PREPARED,
    Phase.SAVING: Point.SAVING,
    Phase.EVALUATING: Point.EVALUATING,
    Phase.FINISHING: Point.FINISHING,
    Phase.HOLDING: Point.HOLDING,
}
_WAITED = {Phase.COMPUTING: Point.EXCHANGING, Phase.COMMITTING: Point.RIDING}


class Halts:
    """The trainer's end of the board: the wishes, and the standing still."""

    def __init__(self, path: str, node: str) -> None:
        self.step: Callable[[], int] = lambda: 0
        self.phase: Callable[[], Phase] = lambda: Phase.LOADING
        self._changed = threading.Condition()
        self._wishes: dict[int, tuple[Point, int]] = {}
        self._halted: set[int] = set()
        self._begun = False
        self._board = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._board.connect(path)
        os.register_at_fork(after_in_child=self._board.close)  # held there, it would hide this one's death
        self._tell({"node": node, "pid": os.getpid()})
        threading.Thread(target=self._read, name="rig-halts", daemon=True).start()
        with self._changed:
            self._changed.wait_for(lambda: self._begun)

    def passing(self, point: Point) -> bool:
        """Halt when somebody wished so; return whether this trainer did."""
        step = self.step()
        with self._changed:
            met = [n for n, (at, least) in self._wishes.items() if at is point and step >= least]
            for number in met:
                del self._wishes[number]
                self._halted.add(number)
                self._tell({"at": number, "point": point.value, "step": step})
            self._changed.wait_for(lambda: not self._halted.intersection(met))
        return bool(met)

    def _tell(self, words: dict[str, Any]) -> None:
        self._board.sendall(json.dumps(words).encode() + b"\n")

    def _read(self) -> None:
        with self._board.makefile("rb") as lines:
            for line in lines:
                self._take(json.loads(line))
        with self._changed:  # the rig is gone, or has closed its board
            self._wishes.clear()
            self._halted.clear()
            self._begun = True
            self._changed.notify_all()

    def _take(self, words: dict[str, Any]) -> None:
        with self._changed:
            if "stop" in words:
                self._wishes[words["stop"]] = (Point(words["point"]), words["step"])
            elif "go" in words:
                self._wishes.pop(words["go"], None)
                self._halted.discard(words["go"])
            elif "begin" in words:
                self._begun = True
            elif "where" in words:
                self._tell({"phase": self.phase().value, "step": self.step()})
            self._changed.notify_all()


class HaltingPhases(PhaseClock):
    """The phases of the trainer, each a place to halt."""

    def __init__(self, halts: Halts) -> None:
        super().__init__()
        self._halts = halts
        halts.phase = lambda: self.read()[0]

    def enter(self, phase: Phase, predicted_s: float = 0.0) -> None:
        """Begin ``phase``, and halt in it."""
        super().enter(phase, predicted_s)
        if phase in _ENTERED:
            self._halts.passing(_ENTERED[phase])

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Halt before the wait for others, while what they wait for is under way."""
        phase = self.read()[0]
        with super().waiting():
            if phase in _WAITED:
                self._halts.passing(_WAITED[phase])
            yield
        if phase is Phase.COMMITTING and self._halts.passing(Point.UNSEEN):
            raise WorldError("the connection to a member was lost before its rider was seen (the rig)")

    def transferring(self) -> AbstractContextManager[None]:
        """Halt before a state is passed."""
        return self._transferring()

    @contextmanager
    def _transferring(self) -> Iterator[None]:
        with super().transferring():
            self._halts.passing(Point.TRANSFERRING)
            yield


def halting_desk(halts: Halts, checkpoint_every_s: float) -> type[Desk]:
    """Return a desk that halts the trainer before it loads, and learns its step from the loaded run."""

    class HaltingDesk(Desk):
        def wait_load(self) -> LoadRun | None:
            order = super().wait_load()
            if order is not None:
                _follow_run(halts, checkpoint_every_s)
                halts.passing(Point.LOADING)
            return order

    return HaltingDesk


def _follow_run(halts: Halts, checkpoint_every_s: float) -> None:
    """Have ``halts`` know the committed steps of the run that is loaded next, and how often it is saved."""
    from daisychain.trainer import loop
    from daisychain.trainer.loading import Run, load_run

    def load_and_follow(order: LoadRun, *rest: Any) -> Run:
        if checkpoint_every_s:
            order = replace(order, checkpoint_every_s=checkpoint_every_s)
        run = load_run(order, *rest)
        halts.step = lambda: run.state.step
        return run

    vars(loop)["load_run"] = load_and_follow


def main(arguments: list[str]) -> int:
    """Be the trainer; returns its exit code."""
    board, node, clock_offset_s, checkpoint_s, descriptor = arguments
    shift_clock(float(clock_offset_s))
    program.die_with_parent()  # before the first wait, as the product does
    halts = Halts(board, node)
    vars(program)["PhaseClock"] = lambda: HaltingPhases(halts)
    vars(program)["Desk"] = halting_desk(halts, float(checkpoint_s))
    return program.main([descriptor])


if __name__ == "__main__":
    program.end(main(sys.argv[1:]))
