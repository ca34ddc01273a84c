"""Memory that did not suffice after all: the same work again, in micro-batches half as large."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from typing import TypeVar

import torch

from daisychain.trainer.engine.compute import Computer
from daisychain.trainer.engine.gradients import clear
from daisychain.trainer.jobs.user_code import wants_memory

log = logging.getLogger(__name__)

T = TypeVar("T")


def within_memory(
    computer: Computer, work: Callable[[], T], before_retry: Callable[[], None] = lambda: None
) -> T:
    """Return ``work()``; while it raises for want of memory it is done again, each time in smaller pieces.

    The pieces stay that small from then on. ``work`` must have no effect that a second run would double;
    ``before_retry`` is called between two. When pieces cannot be smaller (one sample, or granules) the
    want of memory is raised: the node then stands by with the reason.
    """
    while True:
        try:
            return work()
        except Exception as error:
            if not wants_memory(error) or not computer.shrink():
                raise
            told = " ".join(str(error).split())[:200] or type(error).__name__
        # Only here, with the error gone, is what its frames held given back.
        clear(computer.layout.parameters)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        log.warning("memory did not suffice: %d samples at a time from now on (%s)", computer.largest, told)
        before_retry()
