"""What the training maths needs of a world: sums over its ranks, and nothing else.

`world.group.FormedWorld` is the real one (gloo); `Alone` is a world of one. The engine knows only this.
"""

from __future__ import annotations

from typing import Protocol

import torch


class Pending(Protocol):
    """A collective under way."""

    def wait(self) -> None:
        """Block until it completed on this rank; raises `WorldError` when the world broke."""


class Exchange(Protocol):
    """One formed world, as the training maths sees it.

    Every rank issues the same collectives in the same order.
    """

    @property
    def rank(self) -> int:
        """This rank, 0 <= rank < size."""

    @property
    def size(self) -> int:
        """The number of ranks."""

    def sum(self, tensor: torch.Tensor) -> Pending:
        """Start replacing ``tensor`` (host memory, contiguous) by its sum over the ranks."""

    def max(self, tensor: torch.Tensor) -> Pending:
        """Start replacing ``tensor`` (host memory, contiguous) by its maximum over the ranks."""


class _Done:
    """A collective that needs no wait."""

    def wait(self) -> None:
        """Return at once."""


class Alone:
    """The world of one rank: every sum is already there."""

    rank = 0
    size = 1

    def sum(self, tensor: torch.Tensor) -> Pending:
        """Leave ``tensor`` as it is."""
        return _Done()

    def max(self, tensor: torch.Tensor) -> Pending:
        """Leave ``tensor`` as it is."""
        return _Done()
