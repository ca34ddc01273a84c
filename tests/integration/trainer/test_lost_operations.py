"""An operation that gloo lost track of: whoever waits for it gets out soon, and the world is buried.

Which operation gloo loses cannot be chosen (one abort in seven with megabytes under way), so here a work of
this file's own stands for it: it neither fails nor completes, until the test lets it.
"""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import pytest
import torch

from daisychain.errors import WorldError
from daisychain.trainer.world.group import GroupSettings, World
from support.plans import plan
from support.waiting import until

SETTINGS = GroupSettings()
SOON_S = 0.15
"""What is left of the 0.2 s that an orderly leave may cost, once the next world has formed."""


class LostWork:
    """What gloo gives for an operation that it has lost track of; ``ended`` stands for gloo's own timeout."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def wait(self, timeout: timedelta | None = None) -> None:
        if not self.ended.wait(None if timeout is None else timeout.total_seconds()):
            raise RuntimeError("Timed out waiting")
        raise RuntimeError("it had been lost")

    def is_completed(self) -> bool:
        return self.ended.is_set()


class Group:
    """A process group that loses every operation."""

    def __init__(self) -> None:
        self.works: list[LostWork] = []

    def allreduce(self, tensors: list[torch.Tensor], options: Any) -> LostWork:
        return self._lose()

    def alltoall_base(self, came: torch.Tensor, sent: torch.Tensor, by: list[int], to: list[int]) -> LostWork:
        return self._lose()

    def _lose(self) -> LostWork:
        self.works.append(LostWork())
        return self.works[-1]


def buried() -> int:
    return sum(thread.name == "buried-world" for thread in threading.enumerate())


@pytest.mark.parametrize("at_once", [1, 5])
@pytest.mark.parametrize("numbers", [4, 100_000], ids=["pairwise", "ring"])
def test_after_an_abort_nobody_waits_for_what_gloo_lost(at_once: int, numbers: int) -> None:
    """However many of them are under way: together they cost one takedown, not one each."""
    group = Group()
    world = World(plan(range(3), 1), 0, group, frozenset(), SETTINGS)
    works = [world.sum(torch.zeros(numbers)) for _ in range(at_once)]
    threading.Timer(0.05, lambda: world.abort("a newer plan came")).start()
    began_at = time.monotonic()
    with pytest.raises(WorldError, match="a newer plan came"):
        works[0].wait()
    world.close()
    assert 0.05 <= time.monotonic() - began_at < 0.05 + SOON_S
    assert buried() == 1
    for work in group.works:
        work.ended.set()
    until(lambda: buried() == 0, 5.0, "the world stays buried")


def test_a_world_left_with_an_operation_under_way_is_buried_as_soon() -> None:
    group = Group()
    world = World(plan(range(3), 1), 0, group, frozenset(), SETTINGS)
    world.sum(torch.zeros(4))
    began_at = time.monotonic()
    world.close()
    assert time.monotonic() - began_at < SOON_S
    group.works[0].ended.set()
    until(lambda: buried() == 0, 5.0, "the world stays buried")
