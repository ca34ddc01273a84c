"""What a container or a service manager lets this process use: control groups, versions 1 and 2.

A limit may stand at any level above our own group, so the least over all levels counts. The formats are
those of the kernel's documentation (admin-guide/cgroup-v1 and cgroup-v2).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")

CGROUP_MOUNT = "sys/fs/cgroup"
MEMBERSHIP = "proc/self/cgroup"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits found. None: there is none.

    Attributes:
        cpus: CPU time a second, in CPUs; may be a fraction.
        memory_bytes: most memory that the group may use.
    """

    cpus: float | None
    memory_bytes: int | None


def read_limits(root: Path = Path("/")) -> Limits:
    """Return the limits of this process. Files that are missing or unreadable mean no limit."""
    membership = _read(root / MEMBERSHIP)
    if membership is None:
        return Limits(None, None)
    mount = root / CGROUP_MOUNT
    cpus: list[float] = []
    memory: list[int] = []
    for controllers, path in parse_membership(membership):
        if not controllers:
            for group in [*_levels(mount, path), *_levels(mount / "unified", path)]:
                _keep(cpus, cpu_quota(_read(group / "cpu.max")))
                _keep(memory, byte_limit(_read(group / "memory.max")))
        if "cpu" in controllers:
            for group in [*_levels(mount / ",".join(controllers), path), *_levels(mount / "cpu", path)]:
                quota, period = _read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us")
                if quota is not None and period is not None:
                    _keep(cpus, cpu_quota(f"{quota.strip()} {period.strip()}"))
        if "memory" in controllers:
            for group in _levels(mount / "memory", path):
                _keep(memory, byte_limit(_read(group / "memory.limit_in_bytes")))
    return Limits(min(cpus, default=None), min(memory, default=None))


def parse_membership(text: str) -> list[tuple[tuple[str, ...], str]]:
    """Return (controllers, path) of each line of /proc/self/cgroup; version 2 has no controllers."""
    found = []
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            found.append((tuple(filter(None, parts[1].split(","))), parts[2]))
    return found


def cpu_quota(text: str | None) -> float | None:
    """Return the CPUs that ``<quota> <period>`` (microseconds) allow; None without a limit."""
    if text is None:
        return None
    parts = text.split()
    if len(parts) != 2 or not parts[0].isdigit() or not parts[1].isdigit():
        return None  # "max", or version 1's -1
    quota, period = int(parts[0]), int(parts[1])
    return quota / period if quota > 0 and period > 0 else None


def byte_limit(text: str | None) -> int | None:
    """Return a memory limit in bytes; None without one. Version 1 writes a huge number for none."""
    if text is None or not text.strip().isdigit():
        return None
    value = int(text)
    return value if 0 < value < 1 << 60 else None


def _levels(base: Path, path: str) -> list[Path]:
    """Return our group and all above it under ``base``.

    In a container the path may be the host's and not exist here; the mount itself is then our group.
    """
    levels = [base]
    for part in Path(path.lstrip("/")).parts:
        if part == "..":  # a group outside our namespace: nothing here tells of it
            break
        levels.append(levels[-1] / part)
    return levels


def _keep(found: list[_T], value: _T | None) -> None:
    if value is not None:
        found.append(value)


def _read(path: Path) -> str | None:
    try:
        return path.read_text("ascii", "replace")
    except OSError:
        return None
