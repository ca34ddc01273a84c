"""A world of several ranks in one process: real sums, one thread a rank, one of them running at a time.

A rank gives up its turn only while it waits for a collective, so torch's process-wide random generator is
used by one rank at a time, and every run takes the same course.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from daisychain.errors import WorldError
from daisychain.trainer.engine.exchange import Exchange

T = TypeVar("T")
TIMEOUT_S = 60.0


@dataclass
class _Collective:
    kind: str
    tensors: dict[int, torch.Tensor] = field(default_factory=dict)
    done: bool = False


class LocalWorld:
    """``size`` ranks that really sum."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.turn = threading.Condition()
        self.collectives: list[_Collective] = []
        self.broken = False
        self.bytes_summed = 0

    def run(self, rank_main: Callable[[LocalRank], T]) -> list[T]:
        """Call ``rank_main`` once for every rank and return the results in rank order.

        The first exception is raised here once every rank has ended; the others then get `WorldError`.
        """
        results: dict[int, T] = {}
        errors: list[BaseException] = []

        def main(rank: int) -> None:
            with self.turn:
                try:
                    results[rank] = rank_main(LocalRank(self, rank))
                except BaseException as error:
                    errors.append(error)
                    self.broken = True
                    self.turn.notify_all()

        threads = [threading.Thread(target=main, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return [results[rank] for rank in range(self.size)]


class LocalRank:
    """One rank's exchange."""

    def __init__(self, world: LocalWorld, rank: int) -> None:
        self._world = world
        self.rank = rank
        self.size = world.size
        self._issued = 0

    def sum(self, tensor: torch.Tensor) -> LocalPending:
        return self._issue("sum", tensor)

    def max(self, tensor: torch.Tensor) -> LocalPending:
        return self._issue("max", tensor)

    def _issue(self, kind: str, tensor: torch.Tensor) -> LocalPending:
        world = self._world
        assert tensor.is_contiguous() and tensor.device.type == "cpu"
        if self._issued == len(world.collectives):
            world.collectives.append(_Collective(kind))
        collective = world.collectives[self._issued]
        self._issued += 1
        assert collective.kind == kind, "the ranks issue different collectives"
        collective.tensors[self.rank] = tensor
        if len(collective.tensors) == world.size:
            self._complete(collective)
        return LocalPending(world, collective)

    def _complete(self, collective: _Collective) -> None:
        tensors = [collective.tensors[rank] for rank in range(self._world.size)]
        shapes = {(tensor.shape, tensor.dtype) for tensor in tensors}
        assert len(shapes) == 1, f"the ranks' tensors differ: {shapes}"
        total = tensors[0].detach().clone()
        for tensor in tensors[1:]:
            total = total + tensor if collective.kind == "sum" else torch.maximum(total, tensor)
        with torch.no_grad():
            for tensor in tensors:
                tensor.copy_(total)
        self._world.bytes_summed += total.numel() * total.element_size()
        collective.tensors = {}
        collective.done = True
        self._world.turn.notify_all()


class LocalPending:
    """A collective that some ranks have not reached yet."""

    def __init__(self, world: LocalWorld, collective: _Collective) -> None:
        self._world, self._collective = world, collective

    def wait(self) -> None:
        while not self._collective.done:
            if self._world.broken:
                raise WorldError("another rank left")
            assert self._world.turn.wait(TIMEOUT_S), "the other ranks never came"


class Breaking:
    """An exchange whose ``at``-th collective (from 0) fails: when it is issued, or when it is waited for."""

    def __init__(self, inner: Exchange, at: int, when_waiting: bool) -> None:
        self._inner, self._at, self._when_waiting = inner, at, when_waiting
        self.issued = 0

    @property
    def rank(self) -> int:
        return self._inner.rank

    @property
    def size(self) -> int:
        return self._inner.size

    def sum(self, tensor: torch.Tensor) -> _BreakingPending:
        return self._count(tensor)

    def max(self, tensor: torch.Tensor) -> _BreakingPending:
        return self._count(tensor)

    def _count(self, tensor: torch.Tensor) -> _BreakingPending:
        fails = self.issued == self._at
        self.issued += 1
        if fails:
            # As gloo does: the tensor is left with whatever had arrived.
            tensor.view(-1)[: tensor.numel() // 2].fill_(77)
            if not self._when_waiting:
                raise WorldError("broken on purpose")
        return _BreakingPending(fails)


class _BreakingPending:
    def __init__(self, fails: bool) -> None:
        self._fails = fails

    def wait(self) -> None:
        if self._fails:
            raise WorldError("broken on purpose")
