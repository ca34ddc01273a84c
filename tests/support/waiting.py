"""Waiting on conditions with deadlines: the only way in which a test may wait."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

POLL_S = 0.01


def until(condition: Callable[[], bool], timeout_s: float, what: str) -> float:
    """Wait until ``condition()`` holds, at most ``timeout_s``; return the seconds it took.

    Past the bound the test fails, naming ``what``.
    """
    started = time.monotonic()
    collected = False
    while not condition():
        waited_s = time.monotonic() - started
        if waited_s > timeout_s:
            raise AssertionError(f"{what}: still so after {timeout_s} s")
        if not collected and waited_s > 0.1:  # what only awaits the collector is no leak
            gc.collect()
            collected = True
        time.sleep(POLL_S)
    return time.monotonic() - started
