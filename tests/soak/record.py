"""What a soak has seen so far, on disk: a later sitting goes on where an earlier one stopped."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from daisychain.host.storage import write_atomically


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """One seed: the size of its chain, the simulated seconds to come together again, what it cost.

    ``broken``: the first line of the promise that it broke; empty when it broke none.
    """

    seed: int
    nodes: int
    together_s: float
    cpu_s: float
    broken: str = ""


class Record(msgspec.Struct):
    """Every seed seen with one state of the code."""

    source: str
    seeds: dict[int, Seen] = msgspec.field(default_factory=dict)

    def add(self, seen: Iterable[Seen]) -> None:
        """Take in what a worker saw."""
        self.seeds.update({each.seed: each for each in seen})

    def failures(self) -> list[Seen]:
        """Return the seeds that broke a promise."""
        return [self.seeds[seed] for seed in sorted(self.seeds) if self.seeds[seed].broken]

    def write(self, path: Path) -> None:
        """Write it down, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, msgspec.json.encode(self))


def resume(path: Path, source: str) -> Record:
    """Return what an earlier sitting saw with the same code; an empty record otherwise."""
    try:
        record = msgspec.json.decode(path.read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError):
        return Record(source)
    return record if record.source == source else Record(source)


def digest_of(folders: Iterable[Path]) -> str:
    """Return the digest of the code in these folders: what was seen with other code says nothing."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.glob("*.py")):
            if not path.name.startswith("test_"):
                digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
