"""The ways in which a person or a system asks a command to end, taken alike."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

_ENDS = frozenset(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextlib.contextmanager
def any_end_is_ctrl_c() -> Iterator[None]:
    """Take SIGTERM and a closed terminal for a Ctrl-C: what was begun is ended in good order."""

    def interrupt(_: int, frame: FrameType | None) -> None:
        ctrl_c = signal.getsignal(signal.SIGINT)
        if not callable(ctrl_c):
            raise KeyboardInterrupt
        ctrl_c(signal.SIGINT, frame)  # asyncio's own lets the main task end what it began

    others = _ENDS - {signal.SIGINT}
    caught = [number for number in others if signal.getsignal(number) is signal.SIG_DFL]  # nohup stays
    for number in caught:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def held_off() -> Iterator[None]:
    """Have a Ctrl-C, and what is taken for one, wait for the end of the block. Main thread only.

    For what must not be left halfway and takes no time: the handlers raise wherever they strike.
    """
    came: list[int] = []
    with _masked():
        caught = {number: handler for number in _ENDS if callable(handler := signal.getsignal(number))}
        for number in caught:
            signal.signal(number, lambda which, _: came.append(which))
    try:
        yield
    finally:
        with _masked():
            for number, handler in caught.items():
                signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


@contextlib.contextmanager
def _masked() -> Iterator[None]:
    """Have all of them wait while handlers are changed; nothing may be forked within, it would stay deaf."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
