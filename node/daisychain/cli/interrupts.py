"""The ways in which a person or a system asks a command to end, taken alike."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def any_end_is_ctrl_c() -> Iterator[None]:
    """Take SIGTERM and a closed terminal for a Ctrl-C: what was begun is ended in good order."""

    def interrupt(_: int, frame: FrameType | None) -> None:
        ctrl_c = signal.getsignal(signal.SIGINT)
        if not callable(ctrl_c):
            raise KeyboardInterrupt
        ctrl_c(signal.SIGINT, frame)  # asyncio's own lets the main task end what it began

    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    numbers = [signal.Signals[name] for name in names]
    caught = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]  # nohup stays
    for number in caught:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, signal.SIG_DFL)
