"""What an agent costs while there is nothing to train: memory, and its part of a core."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from support.agents import chain
from support.waiting import until

NODES = ("ada", "bob", "cem")
MET_S = 60.0
QUIET_S = 5.0


def measure(seconds: float) -> dict[str, Any]:
    """Return RSS and CPU of three agents that know each other, on loopback: the median of the three."""
    with tempfile.TemporaryDirectory(prefix="idle-") as folder, chain(Path(folder)) as agents:
        nodes = [agents.start(name) for name in NODES]
        for node in nodes:
            until(
                lambda node=node: node.knows(lambda told: len(told.view.peers) == len(NODES) - 1),  # type: ignore[misc]
                MET_S,
                f"{node.name} does not know the others",
            )
        time.sleep(QUIET_S)
        processes = [psutil.Process(node.process.pid) for node in nodes]
        before, began = [_cpu_s(each) for each in processes], time.monotonic()
        time.sleep(seconds)
        took_s = time.monotonic() - began
        percents = [
            100 * (_cpu_s(each) - then) / took_s for each, then in zip(processes, before, strict=True)
        ]
        memory = [each.memory_info().rss / 1e6 for each in processes]
    return {
        "agent_rss_mb": round(statistics.median(memory), 1),
        "agent_cpu_percent": round(statistics.median(percents), 2),
    }


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
