"""What a person did to the job folders since the last look: dropped, edited, deleted; the last is doubted.

A jobs folder that vanishes, cannot be read, or is suddenly another one (a mount came or went) tells nothing
of its jobs: what was known of them is forgotten, and nobody has deleted anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

BELIEVE_S = 3.0
"""A folder gone for so long was deleted: moving a new version into its place takes a moment."""

EMPTIED_S = 30.0
"""The same where all of several folders went at once: that may be a sick share."""


PLACED_MAX = 256
"""Most fetched copies remembered until they are seen: those that never land must not add up."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Since the last look.

    Attributes:
        dropped: digests of jobs that were not here before, fetched copies left out; none at the first look.
        edited: (name, former digest) of folders whose files are others now.
        deleted: (name, digest) of folders that are gone, and whose files are in no other folder.
    """

    dropped: frozenset[str] = frozenset()
    edited: tuple[tuple[str, str], ...] = ()
    deleted: tuple[tuple[str, str], ...] = ()


class FolderChanges:
    """Remembers the jobs of one jobs folder from look to look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._root: tuple[int, int] | None = None
        self._known: dict[str, str] = {}
        self._gone_at: dict[str, float] = {}
        self._placed: dict[str, int] = {}

    def placing(self, name: str, inode: int) -> None:
        """A copy that this node fetched, with this inode, is about to become the folder ``name``.

        Nobody has dropped it. Called before it is there, from another thread than `look`.
        """
        placed = {**self._placed, name: inode}
        self._placed = dict(tuple(placed.items())[-PLACED_MAX:])

    def look(self, found: Mapping[str, str] | None, now: float) -> Changes:
        """Return what changed up to ``now`` (monotonic seconds).

        ``found``: digests by folder name; None when the jobs folder could not be read just now. Asks the disk
        for what is no longer found: call it in a thread.
        """
        root = None if found is None else self._identity()
        if found is None or root is None or root != self._root:
            self._root, self._known, self._gone_at = root, dict(found or {}) if root else {}, {}
            return Changes()
        before = frozenset(self._known.values())
        fetched = {name for name in found if name not in self._known and self._was_placed(name)}
        edited = tuple(
            (name, self._known[name])
            for name, digest in sorted(found.items())
            if self._known.get(name, digest) != digest
        )
        self._known.update(found)
        missing = self._known.keys() - found.keys()
        gone = {name for name in missing if self._is_gone(name)}
        self._gone_at = {name: self._gone_at.get(name, now) for name in gone}
        patience_s = EMPTIED_S if len(gone) > 1 and len(gone) == len(self._known) else BELIEVE_S
        long_gone = sorted(name for name, since in self._gone_at.items() if now >= since + patience_s)
        if long_gone and self._identity() != root:
            return Changes()  # unmounted while we looked
        vanished = [(name, self._known.pop(name)) for name in long_gone]
        still = set(self._known.values())
        return Changes(
            dropped=frozenset(digest for name, digest in found.items() if name not in fetched) - before,
            edited=tuple((name, digest) for name, digest in edited if digest not in still),
            deleted=tuple((name, digest) for name, digest in vanished if digest not in still),
        )

    def _was_placed(self, name: str) -> bool:
        """Whether the folder, first seen now, is the very one that was fetched; it is asked once."""
        inode = self._placed.pop(name, None)
        if inode is None:
            return False
        try:
            return (self._path / name).lstat().st_ino == inode
        except OSError:
            return False

    def _is_gone(self, name: str) -> bool:
        try:
            (self._path / name).lstat()
        except FileNotFoundError:
            return True
        except OSError:  # a stale share, a sick disk: nobody knows
            return False
        return False

    def _identity(self) -> tuple[int, int] | None:
        try:
            facts = self._path.stat()
        except OSError:
            return None
        return (facts.st_dev, facts.st_ino)
