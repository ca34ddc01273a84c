"""Memory of the training process: what is free, what one sample costs, and how freed memory is kept."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import psutil
import torch

CGROUP = Path("/sys/fs/cgroup")

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


def free_bytes(device: torch.device, root: Path = CGROUP) -> int:
    """Return the memory that is free for activations: the device's, or the machine's within its cgroup."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free = psutil.virtual_memory().available
    try:
        limit = (root / "memory.max").read_text().strip()
        used = int((root / "memory.current").read_text())
        return free if limit == "max" else max(0, min(free, int(limit) - used))
    except (OSError, ValueError):
        return int(free)


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
