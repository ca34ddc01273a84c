"""A bound on what the trainer's process may allocate: past it an allocation fails, and the machine lives on.

The kernel counts private writable memory (RLIMIT_DATA): heap, tensors, threads' stacks. Mapped files and what
is only reserved do not count, so a table larger than memory still trains. Each process of the job has
it for itself; shared memory has the kernel's own.
"""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path

STATUS = "proc/self/status"


def limit_memory(max_bytes: int) -> None:
    """Let this process, and each that it starts, allocate ``max_bytes`` at most; for good. Linux only."""
    if not sys.platform.startswith("linux"):
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bound = max_bytes if hard == resource.RLIM_INFINITY else min(max_bytes, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))


def left_within_limit(root: Path = Path("/")) -> int | None:
    """Return the bytes that this process may still allocate; None where nothing bounds it."""
    if not sys.platform.startswith("linux"):
        return None
    import resource

    bound, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if bound == resource.RLIM_INFINITY:
        return None
    try:
        found = re.search(
            r"^VmData:\s+(\d+) kB$", (root / STATUS).read_text("ascii", "replace"), re.MULTILINE
        )
    except OSError:
        return bound
    return bound if found is None else max(0, bound - 1024 * int(found[1]))
