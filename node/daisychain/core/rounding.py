"""What a person is told when the machines of a world round differently: a pure function."""

from __future__ import annotations

from collections.abc import Iterable

DIFFERENTLY = "these machines round differently: equal to rounding, not to the bit"
"""What that means for the result of a reproducible run."""


def caution(members: Iterable[tuple[str, str]]) -> str:
    """Return `DIFFERENTLY` and who is unlike whom; empty when all round alike, or when it does not matter.

    ``members``: name and digest of each (see `TrainerStatus.rounding`); an empty digest says that its job
    promises no bits.
    """
    groups: dict[str, list[str]] = {}
    for name, digest in members:
        if digest:
            groups.setdefault(digest, []).append(name)
    if len(groups) < 2:
        return ""
    return f"{DIFFERENTLY}: " + " unlike ".join(", ".join(names) for names in groups.values())
