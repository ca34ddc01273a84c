"""Whose things these are: namespaces and control groups carry the mark of the process that made them.

A test run that was killed leaves them behind; the next one finds them by their mark and removes them.
"""

from __future__ import annotations

import os
from pathlib import Path


def mark(pid: int | None = None) -> str:
    """Return what names a process (this one) for as long as the machine runs: its id and start, in ticks."""
    pid = os.getpid() if pid is None else pid
    return f"{pid}-{_started(pid)}"


def is_orphan(owner: str) -> bool:
    """Whether the process with this mark is gone; False for a text that is no mark."""
    pid, _, started = owner.partition("-")
    if not (pid.isdecimal() and started.isdecimal()):
        return False
    try:
        return _started(int(pid)) != int(started)
    except OSError:
        return True


def _started(pid: int) -> int:
    """Return when a process began, in ticks since boot: a number that is used again begins later."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    return int(after_name.split()[19])
