"""A gloo world: formed beside whatever was there before, ended from any thread, dropped in order.

Nothing here is global: no default process group, no environment. A world is one raw
`ProcessGroupGloo` over a device made from this member's own address, met through a `BlobStore`.

Facts this rests on (tried on torch 2.13): a group that is forming cannot be aborted, but a second
one forms beside it, so each attempt has a thread of its own and is left to itself past its deadline;
a formed group ends when its connections are shut; a group may be dropped only when no work of it is
under way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn, Protocol

import torch
import torch.distributed as dist

from daisychain.core.ids import Generation
from daisychain.core.world import WorldPlan
from daisychain.errors import WorldError
from daisychain.trainer.exchange import Alone, Exchange, Pending
from daisychain.trainer.sockets import OpenSocket, plain_host, shut


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Bounds of a world.

    Attributes:
        collective_s: a collective that takes longer breaks the world. The agents notice a dead or silent
            member long before; this ends what they cannot see, and a slow link must fit in it.
        takedown_s: for ending what is under way when a world is left. Past it the process must end:
            gloo would still write into tensors that the next world uses.
    """

    collective_s: float = 600.0
    takedown_s: float = 10.0


class FormedWorld(Exchange, Protocol):
    """What the loop and the reconciliation need of a world, besides the sums."""

    @property
    def generation(self) -> Generation:
        """Which world this is."""

    def gather(self, tensor: torch.Tensor, timeout_s: float | None = None) -> list[torch.Tensor]:
        """Return every rank's ``tensor`` (host memory, same size on all), in rank order.

        Raises `WorldError`, also when it takes longer than ``timeout_s``.
        """

    def send(self, tensor: torch.Tensor, rank: int) -> Pending:
        """Start sending ``tensor`` (host memory, contiguous) to ``rank``."""

    def receive(self, tensor: torch.Tensor, rank: int) -> Pending:
        """Start filling ``tensor`` with what ``rank`` sends."""

    def abort(self, reason: str) -> None:
        """End the world, from any thread: what waits in it or is tried later raises `WorldError`."""

    def deliver(self, blobs: tuple[bytes, ...]) -> None:
        """Take no notice: a formed world has its members' addresses."""

    def close(self) -> None:
        """Leave the world and free it; training thread only. Idempotent."""


class UncleanTakedownError(Exception):
    """A group could not be taken down: nothing of it may be trusted, so the process must end."""


Waiting = Callable[[], AbstractContextManager[object]]
"""Entered while this rank waits for others (tells a node that computes too long from one that waits)."""


class _Work:
    """One gloo operation under way."""

    def __init__(self, world: World, work: Any) -> None:
        self._world = world
        self._work = work

    def wait(self) -> None:
        """Block until it completed here; raises `WorldError`."""
        self.wait_for(None)

    def wait_for(self, timeout_s: float | None) -> None:
        """Like `wait`; longer than ``timeout_s`` is an error too."""
        work, self._work = self._work, None
        if work is None:
            return
        try:
            with self._world.waiting():
                if timeout_s is None:
                    work.wait()
                else:
                    work.wait(timedelta(seconds=timeout_s))
        except RuntimeError as error:
            self._world.broke(error)
        finally:
            if work.is_completed():  # one that timed out is still under way: close() ends it
                self._world.ended(work)


class World:
    """A formed gloo world of at least two ranks. Used by the training thread; `abort` by any."""

    def __init__(
        self,
        plan: WorldPlan,
        rank: int,
        group: Any,
        owned: frozenset[OpenSocket],
        settings: GroupSettings,
        waiting: Waiting = nullcontext,
    ) -> None:
        self.generation = plan.generation
        self.rank = rank
        self.size = plan.world_size
        self.waiting = waiting
        self._group = group
        self._owned = owned
        self._peers = frozenset(plain_host(member.host) for member in plan.members)
        self._settings = settings
        self._under_way: dict[int, Any] = {}
        self._reason = ""
        self._lock = threading.Lock()

    def sum(self, tensor: torch.Tensor) -> Pending:
        """Start replacing ``tensor`` by its sum over the ranks."""
        return self._reduce(tensor, dist.ReduceOp.SUM)

    def max(self, tensor: torch.Tensor) -> Pending:
        """Start replacing ``tensor`` by its maximum over the ranks."""
        return self._reduce(tensor, dist.ReduceOp.MAX)

    def gather(self, tensor: torch.Tensor, timeout_s: float | None = None) -> list[torch.Tensor]:
        """Return every rank's ``tensor``, in rank order."""
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        self._start(lambda: self._group.allgather([parts], [tensor])).wait_for(timeout_s)
        return parts

    def send(self, tensor: torch.Tensor, rank: int) -> Pending:
        """Start sending ``tensor`` to ``rank``."""
        return self._start(lambda: self._group.send([tensor], rank, 0))

    def receive(self, tensor: torch.Tensor, rank: int) -> Pending:
        """Start filling ``tensor`` with what ``rank`` sends."""
        return self._start(lambda: self._group.recv([tensor], rank, 0))

    def abort(self, reason: str) -> None:
        """Shut this world's connections; the listener, the agent's socket and other worlds stay."""
        with self._lock:
            self._reason = self._reason or reason
            shut(self._owned, self._peers)

    def deliver(self, blobs: tuple[bytes, ...]) -> None:
        """Take no notice."""

    def close(self) -> None:
        """Abort, wait until nothing is under way, then drop the group.

        Raises `UncleanTakedownError` when gloo does not let go within the settings' bound.
        """
        if self._group is None:
            return
        self.abort("this world was left")
        deadline_at = time.monotonic() + self._settings.takedown_s
        for work in list(self._under_way.values()):
            left_s = max(0.001, deadline_at - time.monotonic())
            try:
                work.wait(timedelta(seconds=left_s))
            except RuntimeError:
                if not work.is_completed():
                    raise UncleanTakedownError(
                        f"a collective of generation {self.generation} did not end within "
                        f"{self._settings.takedown_s} s of its abort"
                    ) from None
        self._under_way.clear()
        holder, self._group = [self._group], None
        drop_group(holder, self._settings.takedown_s)

    def broke(self, error: RuntimeError) -> NoReturn:
        """Raise `WorldError` for gloo's ``error``: with the abort's reason when there was one."""
        words = gloo_words(error)
        raise WorldError(f"{self._reason} ({words})" if self._reason else words) from None

    def ended(self, work: Any) -> None:
        """Forget an operation that is over."""
        self._under_way.pop(id(work), None)

    def _reduce(self, tensor: torch.Tensor, op: Any) -> Pending:
        options = dist.AllreduceOptions()
        options.reduceOp = op
        return self._start(lambda: self._group.allreduce([tensor], options))

    def _start(self, issue: Callable[[], Any]) -> _Work:
        if self._reason:
            raise WorldError(self._reason)
        try:
            work = issue()
        except RuntimeError as error:
            self.broke(error)
        self._under_way[id(work)] = work
        return _Work(self, work)


def gloo_words(error: Exception) -> str:
    """Return what gloo says, without its source file and its advice."""
    text = str(error).partition("\n")[0].partition(". This is typically")[0]
    return (text.partition("] ")[2] if text.startswith("[/") and "] " in text else text)[:300]


class SoloWorld(Alone):
    """The world of one member: no gloo, the same loop. `abort` ends it at the next sum."""

    def __init__(self, plan: WorldPlan) -> None:
        self.generation = plan.generation
        self._reason = ""

    def sum(self, tensor: torch.Tensor) -> Pending:
        """Leave ``tensor`` as it is; raises `WorldError` once the world was aborted."""
        self._check()
        return super().sum(tensor)

    def max(self, tensor: torch.Tensor) -> Pending:
        """Leave ``tensor`` as it is; raises `WorldError` once the world was aborted."""
        self._check()
        return super().max(tensor)

    def gather(self, tensor: torch.Tensor, timeout_s: float | None = None) -> list[torch.Tensor]:
        """Return ``tensor`` alone."""
        self._check()
        return [tensor.clone()]

    def send(self, tensor: torch.Tensor, rank: int) -> Pending:
        """Refuse: there is nobody to send to."""
        raise WorldError(f"no rank {rank} in a world of one")

    def receive(self, tensor: torch.Tensor, rank: int) -> Pending:
        """Refuse: there is nobody to receive from."""
        raise WorldError(f"no rank {rank} in a world of one")

    def abort(self, reason: str) -> None:
        """Make the next sum raise."""
        self._reason = self._reason or reason

    def deliver(self, blobs: tuple[bytes, ...]) -> None:
        """Take no notice."""

    def close(self) -> None:
        """End the world; there is nothing to free."""
        self.abort("this world was left")

    def _check(self) -> None:
        if self._reason:
            raise WorldError(self._reason)


def drop_group(holder: list[Any], timeout_s: float) -> None:
    """Drop the group, of which ``holder`` has the last reference, beside the caller.

    gloo's destructor joins its threads; raises `UncleanTakedownError` when that takes longer
    than ``timeout_s``.
    """
    thread = threading.Thread(target=holder.clear, name="drop-group", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        raise UncleanTakedownError(f"a gloo group was not freed within {timeout_s} s")
