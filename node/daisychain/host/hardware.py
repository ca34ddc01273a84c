"""What of this machine a node may use: the facts in its NodeInfo, and why they are so."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import dataclass

import psutil

from daisychain.host.limits import Limits, read_limits

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Hardware:
    """What this process may use of the machine.

    Attributes:
        platform: ``linux``, ``darwin`` or ``win32``.
        cores: logical CPUs, at least one; ``cores_reason`` says what bounds them.
        memory_bytes: memory that may be used in all; ``memory_reason`` says what bounds it.
    """

    platform: str
    cores: int
    cores_reason: str
    memory_bytes: int
    memory_reason: str


def hardware() -> Hardware:
    """Return the facts of this machine, as seen by this process."""
    present = psutil.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else present
    return judge_hardware(sys.platform, present, allowed, psutil.virtual_memory().total, read_limits())


def judge_hardware(platform: str, present: int, allowed: int, memory_bytes: int, limits: Limits) -> Hardware:
    """Return what is usable of ``present`` CPUs (``allowed`` by affinity) and memory under ``limits``.

    A quota that is no whole number of CPUs is rounded up: the threads share the time.
    """
    cores, cores_reason = max(1, min(present, allowed)), f"the machine has {present}"
    if allowed < present:
        cores_reason = f"{allowed} of the machine's {present} are allowed to this process"
    if limits.cpus is not None and math.ceil(limits.cpus) < cores:
        cores = max(1, math.ceil(limits.cpus))
        cores_reason = f"a quota of {limits.cpus:.3g} CPUs"
    usable, memory_reason = memory_bytes, "the machine's memory"
    if limits.memory_bytes is not None and limits.memory_bytes < memory_bytes:
        usable = limits.memory_bytes
        memory_reason = f"a limit of {usable / GIB:.1f} GiB on a machine of {memory_bytes / GIB:.1f} GiB"
    return Hardware(platform, cores, cores_reason, usable, memory_reason)


def trainer_memory_bytes(memory_bytes: int) -> int:
    """Return what a trainer may allocate on a node of ``memory_bytes`` where nobody says otherwise.

    An eighth, at least 256 MiB and at most 2 GiB, is left to the agent and the rest of the machine; a trainer
    has 512 MiB at least, or torch does not even load.
    """
    for_others = min(max(memory_bytes // 8, GIB // 4), 2 * GIB)
    return max(memory_bytes - for_others, GIB // 2)


WINDOWS_REMEDY = "Run DaisyChain in Docker Desktop with the tailnet, or inside WSL 2"


def why_no_training(platform: str) -> str | None:
    """Return why nothing can be trained on ``platform``, alone or with other nodes; None when it can.

    ``daisychain run`` is a world of one on the same gloo, so it ends where a node does.
    """
    if platform in ("win32", "cygwin", "msys"):
        return "torch's gloo cannot open its network device on native Windows, so nothing can be trained here"
    return None
