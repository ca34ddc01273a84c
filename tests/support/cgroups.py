"""A CPU quota for a tree of processes: a control group of the test's own, version 1 or 2.

The period is 5 ms, the shortest that is useful: a quota then acts as a slower core, not as long stalls.
"""

from __future__ import annotations

import contextlib
import os
import signal
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.owners import is_orphan, mark
from support.waiting import until

MOUNT = Path("/sys/fs/cgroup")
PREFIX = "daisychain-test-"
PERIOD_US = 5_000
EMPTY_S = 10.0

PRECEDENCE = 50
"""The group's weight against one of the usual weight: the quota bounds it, not who else is busy here."""

ENTER = 'echo $$ > "$0" && exec "$@"'
"""What a shell runs to enter the group of $0 and become the command: its children are born inside."""


@dataclass(frozen=True)
class CpuGroup:
    """A control group that bounds the CPU time of all processes inside, in sum."""

    folder: Path
    period_us: int = PERIOD_US

    def allow(self, cpus: float) -> None:
        """Change the quota; at once, whatever runs inside."""
        quota_us = round(cpus * self.period_us)
        if (self.folder / "cpu.max").exists():
            (self.folder / "cpu.max").write_text(f"{quota_us} {self.period_us}")
        else:
            (self.folder / "cpu.cfs_quota_us").write_text(str(quota_us))

    def starting(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs ``command`` inside, under the same process id."""
        return ["/bin/sh", "-c", ENTER, str(self.folder / "cgroup.procs"), *command]

    def pids(self) -> list[int]:
        return [int(line) for line in (self.folder / "cgroup.procs").read_text().split()]

    def throttled(self) -> int:
        """Return how often the quota has stopped those inside."""
        numbers = dict(line.split() for line in (self.folder / "cpu.stat").read_text().splitlines())
        return int(numbers["nr_throttled"])


@contextlib.contextmanager
def cpu_group(cpus: float, period_us: int = PERIOD_US) -> Iterator[CpuGroup]:
    """A group of ``cpus`` CPUs; skips the test where none can be made.

    Whoever is still inside at the end is killed, so that the group can be removed.
    """
    try:
        group = make_group(cpus, period_us)
    except OSError as error:
        import pytest

        pytest.skip(f"no CPU quotas here (they need root and a writable cpu control group): {error}")
    try:
        yield group
    finally:
        remove_group(group)


def make_group(cpus: float, period_us: int = PERIOD_US) -> CpuGroup:
    """Make a group of ``cpus`` CPUs. Raises `OSError` where that is impossible."""
    return CpuGroup(_make(round(cpus * period_us), period_us), period_us)


def remove_group(group: CpuGroup) -> None:
    """Kill whoever is inside, and remove the group."""
    for pid in group.pids():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: not group.pids(), EMPTY_S, f"{group.folder} is not empty")
    group.folder.rmdir()


def remove_orphans() -> list[str]:
    """Remove the groups of test runs that are gone without having done so; return their names."""
    orphans = []
    with contextlib.suppress(OSError):
        for folder in _parent().glob(f"{PREFIX}*"):
            if is_orphan(folder.name.removeprefix(PREFIX).partition(".")[0]):
                remove_group(CpuGroup(folder))
                orphans.append(folder.name)
    return orphans


def _make(quota_us: int, period_us: int) -> Path:
    """Return the folder of a new group. Raises `OSError` where that is impossible."""
    name = f"{PREFIX}{mark()}.{uuid.uuid4().hex[:8]}"
    second = _is_version_2()
    if second:
        if "cpu" not in (MOUNT / "cgroup.subtree_control").read_text().split():
            (MOUNT / "cgroup.subtree_control").write_text("+cpu")
        files = {"cpu.max": f"{quota_us} {period_us}", "cpu.weight": str(100 * PRECEDENCE)}
    else:
        files = {
            "cpu.cfs_period_us": str(period_us),
            "cpu.cfs_quota_us": str(quota_us),
            "cpu.shares": str(1024 * PRECEDENCE),
        }
    folder = _parent() / name
    folder.mkdir()
    try:
        for file, text in files.items():
            (folder / file).write_text(text)
    except OSError:
        folder.rmdir()
        raise
    return folder


def _is_version_2() -> bool:
    return (MOUNT / "cgroup.controllers").exists()


def _parent() -> Path:
    """Return the folder in which groups are made."""
    return MOUNT if _is_version_2() else _version_1()


def _version_1() -> Path:
    """Return where version 1's cpu controller is mounted."""
    for name in ("cpu", "cpu,cpuacct"):
        if (MOUNT / name / "cgroup.procs").exists():
            return MOUNT / name
    raise FileNotFoundError(f"no cpu controller under {MOUNT}")
