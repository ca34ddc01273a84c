"""Memory of the training process: what is free, what one sample costs, and how freed memory is kept."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import psutil
import torch

from daisychain.trainer.sandbox.memory_limit import left_within_limit

ROOT = Path("/")
CGROUP_MOUNT, MEMBERSHIP = "sys/fs/cgroup", "proc/self/cgroup"

_FILES = {
    2: ("memory.max", "memory.current", ("inactive_file", "active_file")),
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
}
"""By version of the control groups: limit, use, and what of it (in ``memory.stat``) is given up at need.

That is the page cache: a mapped table that was read is all over it.
"""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # mallopt(3)
TRIM_BYTES = 256 << 20
MMAP_BYTES = 32 << 20  # the most that glibc takes

MICRO_BATCH_SHARE = 0.25
"""Part of the free memory that one micro-batch's activations may take."""


def keep_freed() -> bool:
    """Have glibc keep freed memory for the next step; return whether it does.

    By default each step's activations are given back to the system and asked for again, page by page: that
    took a fifth of a small convolutional network's step. Without glibc nothing changes.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_TRIM_THRESHOLD, TRIM_BYTES)) and bool(mallopt(M_MMAP_THRESHOLD, MMAP_BYTES))


def free_bytes(device: torch.device, root: Path = ROOT) -> int:
    """Return the memory that is free for activations: the device's, or the machine's within our limits.

    Our own control group and all above it count, of either version, and the process's own bound: the least of
    what they leave.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free = [int(psutil.virtual_memory().available)]
    for version, group in _groups(root):
        left = _left(version, group)
        if left is not None:
            free.append(max(0, left))
    within = left_within_limit(root)
    return min(free) if within is None else min(*free, within)


def _groups(root: Path) -> Iterator[tuple[int, Path]]:
    """Yield (version, folder) of this process's memory group and of every group above it.

    In a container the path may be the host's and not exist here; the mount itself is then our group.
    """
    mount = root / CGROUP_MOUNT
    try:
        membership = (root / MEMBERSHIP).read_text("ascii", "replace")
    except OSError:
        return
    for line in membership.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        version, group = (1, mount / "memory") if controllers else (2, mount)
        yield version, group
        for part in PurePosixPath(path.lstrip("/")).parts:
            if part == "..":  # a group outside our namespace: nothing here tells of it
                break
            group /= part
            yield version, group


def _left(version: int, group: Path) -> int | None:
    """Return the bytes that ``group`` may still take; None when it has no limit."""
    limit_file, used_file, page_cache = _FILES[version]
    try:
        limit, used = int((group / limit_file).read_text()), int((group / used_file).read_text())
    except (OSError, ValueError):  # "max", or no such group here
        return None
    return limit - max(0, used - sum(_fact(group / "memory.stat", name) for name in page_cache))


def _fact(path: Path, name: str) -> int:
    """Return the number behind ``name`` in a file of names and numbers; 0 when it tells none."""
    try:
        lines = path.read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name} "))
    except (OSError, ValueError, StopIteration):
        return 0


class Kept:
    """Counts the bytes that autograd keeps for backward while it is entered.

    Attributes:
        bytes: of every tensor kept, parameters left out, each storage once.
    """

    def __init__(self, parameters: tuple[torch.nn.Parameter, ...]) -> None:
        self.bytes = 0
        self._seen = {parameter.untyped_storage().data_ptr() for parameter in parameters}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._note, lambda tensor: tensor)

    def _note(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in self._seen:
                self._seen.add(storage.data_ptr())
                self.bytes += storage.nbytes()
        return tensor

    def __enter__(self) -> Kept:
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__(*error)


def micro_batch(bytes_per_sample: float, free: int, most: int) -> int:
    """Return how many samples of ``bytes_per_sample`` one forward may take: 1 to ``most``."""
    if bytes_per_sample <= 0:
        return most
    return max(1, min(most, int(free * MICRO_BATCH_SHARE / bytes_per_sample)))
