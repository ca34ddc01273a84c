"""Orders taken beside the training: pings answered at once, the newest plan wins, stuck worlds ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, assert_never

from daisychain.core.ids import Generation
from daisychain.core.orders import FormWorld, LeaveWorld, LoadRun, Order, PeerBlobs, Ping, Shutdown
from daisychain.core.reports import Pong
from daisychain.trainer.link import AgentLink
from daisychain.trainer.phases import PhaseClock


class Attempt(Protocol):
    """A formation or a formed world, as the control thread can touch it."""

    def abort(self, reason: str) -> None:
        """End it: whoever waits in it gets `WorldError` at once. Any thread, idempotent."""

    def deliver(self, blobs: tuple[bytes, ...]) -> None:
        """Take every rank's address blob."""

    def quiet_s(self) -> float | None:
        """Return the seconds since data last came from another member; None when that is unknown."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """A plan to carry out, and when its order came (monotonic seconds)."""

    order: FormWorld
    at: float


class Desk:
    """Where the control thread leaves what the training thread must do.

    Bounded: one load, one plan (a newer one replaces it), one attempt under way, one reason to end.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._load: LoadRun | None = None
        self._plan: Arrived | None = None
        self._newest: Generation | None = None
        self._attempt: tuple[Generation, Attempt] | None = None
        self._left: LeaveWorld | None = None
        self._ended = ""

    def take(self, order: LoadRun | FormWorld | PeerBlobs | LeaveWorld | Shutdown) -> None:
        """Take an order from the agent; control thread only."""
        with self._changed:
            match order:
                case LoadRun():
                    self._load = self._load or order
                case FormWorld():
                    self._take_plan(order)
                case PeerBlobs():
                    if self._attempt is not None and self._attempt[0] == order.generation:
                        self._attempt[1].deliver(order.blobs)
                case LeaveWorld():
                    self._leave(order)
                case Shutdown():
                    self._ended = self._ended or order.reason or "the agent says so"
                    if self._attempt is not None:
                        self._attempt[1].abort(self._ended)
                case _:
                    assert_never(order)
            self._changed.notify_all()

    def wait_load(self) -> LoadRun | None:
        """Return the run to load; None when the trainer is to end."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._load or self._ended))
            return None if self._ended else self._load

    def wait_plan(self) -> Arrived | None:
        """Return the newest plan, once; None when the trainer is to end."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._plan or self._ended))
            arrived, self._plan = self._plan, None
            return None if self._ended else arrived

    def wait_end(self) -> str:
        """Return why the trainer is to end, once it is."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._ended))
            return self._ended

    def under_way(self, generation: Generation, attempt: Attempt) -> bool:
        """Make ``attempt`` the one that newer orders end; False when one already came: it is ended."""
        with self._changed:
            self._attempt = (generation, attempt)
            reason = self._ended or ("a newer plan came" if self._plan is not None else "")
            if not reason and self._left is not None and self._left.generation == generation:
                reason = self._left.reason  # it came while the world before was still being taken down
            if reason:
                attempt.abort(reason)
            return not reason

    def over(self, generation: Generation) -> None:
        """Forget the attempt at ``generation``: nothing is left to be ended."""
        with self._changed:
            if self._attempt is not None and self._attempt[0] == generation:
                self._attempt = None

    def heard(self) -> tuple[Generation | None, float]:
        """Return the world that data came from last, and how many seconds ago; None when there is none."""
        with self._changed:
            if self._attempt is None:
                return None, 0.0
            generation, attempt = self._attempt
            quiet_s = attempt.quiet_s()
            return (None, 0.0) if quiet_s is None else (generation, quiet_s)

    @property
    def superseded(self) -> bool:
        """Whether a newer plan, or the end, already waits."""
        with self._changed:
            return bool(self._plan or self._ended)

    def _take_plan(self, order: FormWorld) -> None:
        if self._newest is not None and order.plan.generation <= self._newest:
            return
        self._newest = order.plan.generation
        self._plan = Arrived(order, self._clock())
        if self._attempt is not None:
            self._attempt[1].abort(f"a newer plan came: {order.plan.reason}")

    def _leave(self, order: LeaveWorld) -> None:
        self._left = order
        if self._plan is not None and self._plan.order.plan.generation == order.generation:
            self._plan = None
        if self._attempt is not None and self._attempt[0] == order.generation:
            self._attempt[1].abort(order.reason)


class Control(threading.Thread):
    """Reads the agent's orders until it is gone; then ``gone`` is called, which ends the process."""

    def __init__(
        self,
        link: AgentLink,
        orders: Iterator[Order],
        desk: Desk,
        phases: PhaseClock,
        gone: Callable[[str], None],
    ) -> None:
        """``orders``: those of ``link`` that nobody took yet."""
        super().__init__(name="control", daemon=True)
        self._link = link
        self._orders = orders
        self._desk = desk
        self._phases = phases
        self._gone = gone

    def run(self) -> None:
        """Serve orders."""
        reason = "the agent is gone"
        try:
            for order in self._orders:
                self._serve(order)
        except Exception as error:  # a dead control thread must not leave a deaf trainer
            reason = f"{type(error).__name__}: {error}"
        self._gone(reason)

    def _serve(self, order: Order) -> None:
        match order:
            case Ping():
                now = self._phases.read()
                self._link.send(Pong(order.seq, *now, *self._desk.heard()))
            case _:
                self._desk.take(order)
