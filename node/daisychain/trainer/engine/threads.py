"""How many processors this process really has: its affinity, cut by its cgroup's quota."""

from __future__ import annotations

import os
from pathlib import Path

from daisychain.core.job_spec import JobSpec

CGROUP = Path("/sys/fs/cgroup")


def quota(root: Path = CGROUP) -> float | None:
    """Return the processors that the cgroup's quota amounts to; None when there is none.

    cgroup v2: ``cpu.max`` holds "quota period" in microseconds, or "max period"; v1 has one file for each.
    """
    try:
        allowed, period = (root / "cpu.max").read_text().split()[:2]
        return None if allowed == "max" else int(allowed) / int(period)
    except (OSError, ValueError):
        pass
    try:
        allowed_us = int((root / "cpu" / "cpu.cfs_quota_us").read_text())
        period_us = int((root / "cpu" / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    return None if allowed_us <= 0 else allowed_us / period_us


def processors(root: Path = CGROUP) -> int:
    """Return the whole number of processors to use: at least one.

    A quota is rounded up: one thread too many waits, one too few leaves half a processor unused.
    """
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = quota(root)
    return available if limit is None else max(1, min(available, -int(-limit // 1)))


def intra_op_threads(spec: JobSpec) -> int:
    """Return torch's intra-op threads for a job: its own, 1 in reproducible mode, else `processors`."""
    if spec.threads is not None:
        return spec.threads
    return 1 if spec.reproducible else processors()
