"""A process of the demo's own, which no Ctrl-C can make it lose."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from daisychain.cli.interrupts import held_off

POLL_S = 0.05

_PR_SET_PDEATHSIG = 1


class Child:
    """A process that is always either ended or known.

    Python's own bookkeeping is entered with interrupts held off: a Ctrl-C that strikes while a process's end
    is looked for may leave the lock held under which it is found, so that it never is. Whoever makes one
    holds them off until it is kept, or a process runs that nobody knows.
    """

    def __init__(self, command: Sequence[str], log: Path, environ: Mapping[str, str]) -> None:
        """Start it; it dies with this process, and writes all that it says to ``log``."""
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=environ,
                start_new_session=True,  # a Ctrl-C is ours to pass on
                # the demo runs one thread, so this is safe here
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509
            )

    @property
    def pid(self) -> int:
        """Its id, also when it has ended."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        with held_off():
            return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; one that has ended gets none."""
        with held_off():
            self._process.send_signal(number)

    def ends(self, within_s: float) -> bool:
        """Wait until it has ended; False when it has not ``within_s``. An interrupt ends the wait."""
        deadline_at = time.monotonic() + within_s
        while self.running:
            if time.monotonic() > deadline_at:
                return False
            time.sleep(POLL_S)
        return True


def _die_with_parent() -> None:
    """Ask Linux to end this process when the demo is killed outright (it cannot clear up then)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def kill_pid(pid: int | None) -> None:
    """Send SIGKILL to a process of another's, if it is there."""
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
