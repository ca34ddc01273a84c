"""SIGTERM and SIGINT as an event that the agent waits for."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """Give an event that the signals set, while it is open; a second one has no further effect."""
    leaving = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in SIGNALS:
        loop.add_signal_handler(name, leaving.set)
    try:
        yield leaving
    finally:
        for name in SIGNALS:
            loop.remove_signal_handler(name)
