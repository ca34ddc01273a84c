"""Waiting on conditions inside an event loop; see `waiting` for the same outside one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from support.waiting import POLL_S


async def until_async(condition: Callable[[], bool], timeout_s: float, what: str) -> float:
    """Wait until ``condition()`` holds, at most ``timeout_s``; return the seconds it took.

    Past the bound the test fails, naming ``what``.
    """
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > timeout_s:
            raise AssertionError(f"{what}: still so after {timeout_s} s")
        await asyncio.sleep(POLL_S)
    return time.monotonic() - started
