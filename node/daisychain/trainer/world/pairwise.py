"""Small tensors reduced in one hop: every rank sends its own to every other, and each adds them up itself.

gloo's all-reduce passes a number round a ring, 2 (n - 1) hops that wait for each other. What a step must
know before it goes on (tail, rider, flags, a small model's gradient) is so small that sending it to everybody
costs nothing beside the wait. See docs/decisions/0026.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch

from daisychain.trainer.engine.exchange import Pending

Combine = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

add: Combine = operator.add
greater: Combine = torch.maximum


class Pairwise:
    """One such reduction: ``start`` it in a group, then `wait` puts the outcome into the tensor.

    The parts are combined in the order of the ranks, so the outcome has the same bits on every rank.
    """

    def __init__(self, tensor: torch.Tensor, size: int, combine: Combine) -> None:
        self._tensor = tensor
        self._combine = combine
        self._sent = tensor.reshape(1, -1).repeat(size, 1)
        self._came = torch.empty_like(self._sent)
        self._under_way: Pending | None = None

    def issue(self, group: Any) -> Any:
        """Return gloo's work for it."""
        return group.alltoall_base(self._came.view(-1), self._sent.view(-1), [], [])

    def follow(self, under_way: Pending) -> Pending:
        """Return this reduction, to be waited for by ``under_way``."""
        self._under_way = under_way
        return self

    def wait(self) -> None:
        """Block until every rank's part is here and combined; raises `WorldError` when the world broke.

        A second wait does nothing.
        """
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.wait()
            self._tensor.copy_(functools.reduce(self._combine, self._came).view_as(self._tensor))
