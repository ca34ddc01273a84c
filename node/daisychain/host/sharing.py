"""Who else uses this very jobs folder: agents leave a small mark in it and read the others' marks.

Neither the device, nor the path, nor a lock tells: one export is mounted in many ways, and not every network
file system keeps locks. What both agents write and read is in both cases the same folder.
"""

from __future__ import annotations

import contextlib
import os
import re
from itertools import islice
from pathlib import Path

from daisychain.core.ids import NodeId
from daisychain.errors import StorageError
from daisychain.host.storage import remove_scratch, write_atomically

MARK_EVERY_S = 15.0
"""A mark is written anew so often."""

FRESH_S = 60.0
"""A mark so much older than our own is of an agent that is gone, or of a folder that was copied whole."""

MARKS_MAX = 64
"""Most marks that are read: whoever fills the folder with them slows no look."""

_ENTRIES_MAX = 10_000
_MARK = re.compile(r"\.daisychain-node-([0-9a-f]{32})")


class SharedFolder:
    """The marks in one jobs folder."""

    def __init__(self, folder: Path, node_id: NodeId) -> None:
        self._folder = folder
        self._node_id = node_id
        self._mark = folder / f".daisychain-node-{node_id}"
        self._marked_at = -MARK_EVERY_S

    def look(self, now: float) -> frozenset[NodeId]:
        """Return the other nodes that use the folder now, ours marked; ``now``: monotonic seconds.

        Ages are compared with our own mark's by the one clock that stamped both: the folder's. Empty when the
        folder can be neither read nor written. Takes time: call it in a thread.
        """
        try:
            if now >= self._marked_at + MARK_EVERY_S:
                if self._marked_at < 0.0:
                    remove_scratch(self._mark)  # of a life that was killed as it wrote
                write_atomically(self._mark, self._node_id.encode(), mode=0o644)
                self._marked_at = now
            own_at = self._mark.stat().st_mtime
            with os.scandir(self._folder) as entries:
                marks = [e for e in islice(entries, _ENTRIES_MAX) if _MARK.fullmatch(e.name)][:MARKS_MAX]
        except (OSError, StorageError):
            self._marked_at = -MARK_EVERY_S
            return frozenset()
        fresh = (NodeId(mark.name[-32:]) for mark in marks if own_at - _written_at(mark) < FRESH_S)
        return frozenset(fresh) - {self._node_id}

    def leave(self) -> None:
        """Take our mark away."""
        with contextlib.suppress(OSError):
            self._mark.unlink()


def _written_at(mark: os.DirEntry[str]) -> float:
    """Return when the mark was written; long ago when it was taken away this moment."""
    try:
        return mark.stat(follow_symlinks=False).st_mtime
    except OSError:
        return 0.0
