"""A machine whose wall clock is wrong."""

from __future__ import annotations

import time


def shift_clock(offset_s: float) -> None:
    """Have this process's wall clock differ from the machine's by ``offset_s``; its monotonic one is right.

    The kernel has no wall clock of its own for a namespace, so it is shifted where Python reads it: call this
    before anything of DaisyChain is imported, so that nobody keeps the true clock.
    """
    if offset_s == 0.0:
        return
    true_s, true_ns = time.time, time.time_ns
    offset_ns = round(offset_s * 1e9)
    time.time = lambda: true_s() + offset_s
    time.time_ns = lambda: true_ns() + offset_ns
