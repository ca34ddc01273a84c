"""What the agent asks of the kernel for itself: that no job code looks into it, or slips from its hands."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import psutil

_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36

END_S = 2.0
"""Most seconds for ending what a trainer left: stops a job that starts processes faster than they die."""

PAUSE_S = 0.01


def shut_memory() -> bool:
    """Let no process of the same user read this one's memory or environment, or trace it; return whether so.

    The key is in them. Linux only; it costs the core dump and does not bind root.
    """
    return _prctl(_PR_SET_DUMPABLE, 0)


def adopt_orphans() -> bool:
    """Become the parent of every descendant whose own parent ends; return whether so. Linux only."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def reap_orphans(trainer: int | None) -> None:
    """Clear away adopted processes that ended by themselves, beside the living ``trainer``."""
    for pid in _orphans():
        if pid != trainer:
            _reap(pid)


def end_orphans() -> int:
    """End and clear away all adopted processes; return how many are left after END_S.

    Call it only while no trainer lives. Of a tree each round ends the top: what is below is adopted then.
    """
    deadline = time.monotonic() + END_S
    while orphans := _orphans():
        left = [pid for pid in orphans if not _end(pid)]
        if time.monotonic() >= deadline:
            return len(left)
        if left:
            time.sleep(PAUSE_S)
    return 0


def descends_from_here(pid: int) -> bool:
    """Whether ``pid`` is a process that this one started, or one of theirs; so it is if it just ended."""
    for _ in range(4096):  # a chain of parents this long is none
        if pid == os.getpid():
            return True
        if pid <= 1:
            return False
        try:
            stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
        except OSError:
            return True
        pid = int(stat.rpartition(")")[2].split()[1])
    return True


def _orphans() -> list[int]:
    """Return our children that left our session: a trainer has one of its own, and nobody enters another's.

    What the agent itself starts (Tailscale's command, nvidia-smi) stays in its session.
    """
    ours = os.getsid(0)
    found = []
    for pid in _children():
        with contextlib.suppress(OSError):
            if os.getsid(pid) != ours:
                found.append(pid)
    return found


def _children() -> list[int]:
    try:
        lists = [task.joinpath("children").read_text() for task in Path("/proc/self/task").iterdir()]
    except OSError:  # not every kernel is built with it
        return [child.pid for child in psutil.Process().children()]
    return [int(pid) for pids in lists for pid in pids.split()]


def _end(pid: int) -> bool:
    """Kill a child, and clear it away if it is gone by now; return whether it is."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
    return _reap(pid)


def _reap(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:  # somebody else waited for it
        return True


def _prctl(option: int, value: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)
