"""A gloo world: formed beside whatever was there before, ended from any thread, dropped in order.

Nothing here is global: no default process group, no environment. A world is one raw
`ProcessGroupGloo` over a device made from this member's own address, met through a `BlobStore`.

Facts this rests on (tried on torch 2.13): a group that is forming cannot be aborted, but a second one forms
beside it; a formed group ends when its connections are shut (see `sockets`); a group may be dropped only
when no work of it is under way, because its destructor waits for that with the interpreter locked.
"""

from __future__ import annotations

import math
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
from daisychain.core.small_sums import in_one_hop
from daisychain.core.world import WorldPlan
from daisychain.errors import WorldError
from daisychain.trainer.engine.exchange import Alone, Exchange, Pending
from daisychain.trainer.world import pairwise
from daisychain.trainer.world.sockets import Connections, OpenSocket, plain_host


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Bounds of a world.

    Attributes:
        collective_s: a collective that takes longer breaks the world. The agents notice a silent member long
            before; this ends what they cannot see, and frees what gloo lost track of (see `sockets`).
        takedown_s: for gloo to fail what is under way once a world was aborted: it does so within
            milliseconds, or has lost track of it (one abort in seven of a chain with 4 MB of gradient under
            way). Past it the world is buried, at no cost when the operation was only slow.
        buried_max: most worlds that wait for gloo to let go; past it the process must end. Each keeps three
            threads and the memory of its last sums, for at most ``collective_s``.
        poll_s: between two looks at whether the world still stands while something is waited for.
        linger_s: the same once a connection is lost and nobody has aborted yet. Longer: what the peer sent
            before it went may still complete the operation.
    """

    collective_s: float = 120.0
    takedown_s: float = 0.04
    buried_max: int = 16
    poll_s: float = 0.02
    linger_s: float = 0.1


class FormedWorld(Exchange, Protocol):
    """What the loop and the reconciliation need of a world, besides the sums."""

    @property
    def generation(self) -> Generation:
        """Which world this is."""

    def gather(self, tensor: torch.Tensor, timeout_s: float | None = None) -> list[torch.Tensor]:
        """Return every rank's ``tensor`` (host memory, same size on all), in rank order.

        Raises `WorldError`, also when it takes longer than ``timeout_s``.
        """

    def move(self, tensor: torch.Tensor, source: int, target: int) -> Pending:
        """Start copying ``tensor`` (host memory, flat) from rank ``source`` to rank ``target``.

        Every rank takes part; for ranks that are neither, ``tensor`` must be empty.
        """

    def abort(self, reason: str) -> None:
        """End the world, from any thread: what waits in it or is tried later raises `WorldError`."""

    def deliver(self, blobs: tuple[bytes, ...]) -> None:
        """Take no notice: a formed world has its members' addresses."""

    def close(self) -> None:
        """Leave the world and free what is its own; training thread only. Idempotent."""

    def quiet_s(self) -> float | None:
        """Return the seconds since data last came from a peer, from any thread; None when that is unknown."""

    def release(self) -> None:
        """Let go of the connections that `close` kept open: the peers have left this world too."""

    def let_go_in_child(self) -> None:
        """Close the connections in a forked child, which would hide this process's death from the peers."""


class UncleanTakedownError(Exception):
    """Too many groups could not be taken down: the process must end, its successor joins the chain."""


Waiting = Callable[[], AbstractContextManager[object]]
"""Entered while this rank waits for others (tells a node that computes too long from one that waits)."""


class _Work:
    """One gloo operation under way."""

    def __init__(self, world: World, work: Any) -> None:
        self._world = world
        self._work = work

    def wait(self) -> None:
        """Block until it completed here; raises `WorldError`."""
        self.wait_for(math.inf)

    def wait_for(self, timeout_s: float) -> None:
        """Like `wait`; longer than ``timeout_s`` is an error too."""
        work, self._work = self._work, None
        if work is not None:
            with self._world.waiting():
                self._world.finish(work, timeout_s)


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
        self._connections = Connections(owned, frozenset(plain_host(each.host) for each in plan.members))
        self._settings = settings
        self._under_way: dict[int, Any] = {}
        self._reason = ""
        self._aborted_at = math.inf
        self._lock = threading.Lock()

    def sum(self, tensor: torch.Tensor) -> Pending:
        """Start replacing ``tensor`` by its sum over the ranks."""
        return self._reduce(tensor, dist.ReduceOp.SUM, pairwise.add)

    def max(self, tensor: torch.Tensor) -> Pending:
        """Start replacing ``tensor`` by its maximum over the ranks."""
        return self._reduce(tensor, dist.ReduceOp.MAX, pairwise.greater)

    def gather(self, tensor: torch.Tensor, timeout_s: float | None = None) -> list[torch.Tensor]:
        """Return every rank's ``tensor``, in rank order."""
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        work = self._start(lambda: self._group.allgather([parts], [tensor]))
        work.wait_for(math.inf if timeout_s is None else timeout_s)
        return parts

    def move(self, tensor: torch.Tensor, source: int, target: int) -> Pending:
        """Start copying ``tensor`` from rank ``source`` to rank ``target``.

        An all-to-all in which nobody else has anything: gloo's own send and receive cannot be waited for
        in short turns, and so not be given up.
        """
        none = tensor.new_empty(0)
        sent = tensor if self.rank == source else none
        got = tensor if self.rank == target else none
        to = [sent.numel() if rank == target else 0 for rank in range(self.size)]
        by = [got.numel() if rank == source else 0 for rank in range(self.size)]
        return self._start(lambda: self._group.alltoall_base(got, sent, by, to))

    def abort(self, reason: str) -> None:
        """End this world here; the listener, the agent's socket and other worlds stay."""
        with self._lock:
            if not self._reason:
                self._aborted_at = time.monotonic()
                self._reason = reason
            self._connections.shut()

    def deliver(self, blobs: tuple[bytes, ...]) -> None:
        """Take no notice."""

    def close(self) -> None:
        """Abort, wait until nothing is under way, then drop the group; what gloo lost track of is buried.

        Raises `UncleanTakedownError` when too many worlds are buried already.
        """
        if self._group is None:
            return
        self.abort("this world was left")
        deadline_at = self._aborted_at + self._settings.takedown_s
        lost = [work for work in self._under_way.values() if not _ends(work, deadline_at)]
        self._under_way.clear()
        group, self._group = self._group, None
        if lost:
            bury(group, lost, self._settings)
        # The last reference goes here: nothing is under way, so gloo's threads end within milliseconds.

    def quiet_s(self) -> float | None:
        """Return the seconds since data last came over the connections."""
        with self._lock:
            return self._connections.quiet_s()

    def release(self) -> None:
        """Close the duplicates of the connections."""
        with self._lock:
            self._connections.close()

    def let_go_in_child(self) -> None:
        """Close the connections; takes no lock, because its holder was not forked."""
        self._connections.let_go_in_child()

    def finish(self, work: Any, timeout_s: float) -> None:
        """Wait for ``work``; raises `WorldError` when it fails, takes too long, or the world has broken.

        Waits in short turns: gloo can lose track of an operation whose connection dies (see `sockets`), and
        only ring neighbours of a dead rank would notice at all.
        """
        began_at = time.monotonic()
        broken_at = math.inf
        while True:
            turn_s = min(self._settings.poll_s, max(0.001, began_at + timeout_s - time.monotonic()))
            try:
                work.wait(timedelta(seconds=turn_s))
            except RuntimeError:
                if work.is_completed():
                    self._under_way.pop(id(work), None)
                    return self._outcome(work)
            else:
                self._under_way.pop(id(work), None)
                return
            now = time.monotonic()
            if self._connections.lost():
                broken_at = min(broken_at, now)
            if now > min(self._aborted_at + self._settings.takedown_s, broken_at + self._settings.linger_s):
                self._broke("the connection to a member was lost")
            if now - began_at > timeout_s:
                self._broke(f"a member has not answered within {timeout_s:.1f} s")

    def _outcome(self, work: Any) -> None:
        """Return when the completed ``work`` succeeded: it may have just after its turn had passed."""
        try:
            work.wait()
        except RuntimeError as error:
            self._broke(gloo_words(error))

    def _broke(self, words: str) -> NoReturn:
        """Raise `WorldError` with ``words``, behind the abort's reason when there was one."""
        raise WorldError(f"{self._reason} ({words})" if self._reason else words)

    def _reduce(self, tensor: torch.Tensor, op: Any, combine: pairwise.Combine) -> Pending:
        if in_one_hop(tensor.nbytes, self.size):
            small = pairwise.Pairwise(tensor, self.size, combine)
            return small.follow(self._start(lambda: small.issue(self._group)))
        options = dist.AllreduceOptions()
        options.reduceOp = op
        return self._start(lambda: self._group.allreduce([tensor], options))

    def _start(self, issue: Callable[[], Any]) -> _Work:
        if self._reason:
            raise WorldError(self._reason)
        try:
            work = issue()
        except RuntimeError as error:
            self._broke(gloo_words(error))
        self._under_way[id(work)] = work
        return _Work(self, work)


def _ends(work: Any, deadline_at: float) -> bool:
    """Return whether ``work`` ends, one way or the other, by ``deadline_at`` (monotonic seconds)."""
    try:
        work.wait(timedelta(seconds=max(0.001, deadline_at - time.monotonic())))
    except RuntimeError:
        return bool(work.is_completed())
    return True


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

    def move(self, tensor: torch.Tensor, source: int, target: int) -> Pending:
        """Refuse: there is nobody else."""
        raise WorldError(f"no ranks {source} and {target} in a world of one")

    def abort(self, reason: str) -> None:
        """Make the next sum raise."""
        self._reason = self._reason or reason

    def deliver(self, blobs: tuple[bytes, ...]) -> None:
        """Take no notice."""

    def close(self) -> None:
        """End the world; there is nothing to free."""
        self.abort("this world was left")

    def quiet_s(self) -> None:
        """Return None: nobody else is here."""
        return

    def release(self) -> None:
        """Do nothing: it has no connections."""

    def let_go_in_child(self) -> None:
        """Do nothing: it has no connections."""

    def _check(self) -> None:
        if self._reason:
            raise WorldError(self._reason)


_BURIED = "buried-world"


def bury(group: Any, lost: list[Any], settings: GroupSettings) -> None:
    """Keep ``group`` until gloo has ended the operations in ``lost`` by its own timeout, then drop it.

    They touch no memory in use: all connections of the group are shut, and its operations hold their own
    tensors. Dropping it earlier would block the whole process, because the destructor waits for them.
    Raises `UncleanTakedownError` when ``buried_max`` groups wait already.
    """
    waiting = sum(thread.name == _BURIED for thread in threading.enumerate())
    if waiting >= settings.buried_max:
        raise UncleanTakedownError(f"{waiting} broken worlds still wait for gloo to let go of them")
    grave = [group, lost]

    def rest() -> None:
        while not all(_ends(work, time.monotonic() + settings.collective_s) for work in grave[1]):
            pass  # gloo's timeout is not far
        grave.clear()

    threading.Thread(target=rest, name=_BURIED, daemon=True).start()
