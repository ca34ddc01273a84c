"""The book of candidate addresses: whom to dial, when, and whom never."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from daisychain.core.ids import Address, NodeId
from daisychain.core.rng import Rng
from daisychain.core.settings import CoreSettings


@dataclass(slots=True)
class _Entry:
    """One address. ``owner``: the node that it is known or claimed to be; ``member``: proven once."""

    source: str
    owner: NodeId | None
    due_at: float
    member: bool = False
    failures: int = 0
    dialled_at: float | None = None


class Candidates:
    """Addresses that may be nodes; each is dialled until its node is linked, with growing waits."""

    def __init__(self, settings: CoreSettings, rng: Rng) -> None:
        self._settings = settings
        self._rng = rng
        self._entries: dict[Address, _Entry] = {}
        self._never: dict[Address, None] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def seen(self, address: Address, source: str, owner: NodeId | None, now: float) -> None:
        """Remember an address that discovery found; ignored when refused for good or the book is full.

        A node that dialled us (``inbound``) surely lives: it is dialled back at once.
        """
        if address in self._never:
            return
        entry = self._entries.get(address)
        if entry is None:
            if len(self._entries) >= self._settings.candidates_max and not self._make_room():
                return
            self._entries[address] = _Entry(source, owner, now)
            return
        if owner is not None and not entry.member:
            entry.owner = owner
        if source == "inbound" and entry.dialled_at is None:
            entry.due_at = min(entry.due_at, now)

    def linked(self, address: Address, owner: NodeId, now: float) -> None:
        """The dial of ``address`` reached ``owner``."""
        entry = self._entries.setdefault(address, _Entry("peer", owner, now))
        entry.owner, entry.member, entry.failures, entry.dialled_at = owner, True, 0, None

    def lost(self, address: Address, now: float) -> None:
        """The link to a peer at ``address`` fell: it is dialled again at once, then with waits."""
        entry = self._entries.get(address)
        if entry is not None and entry.dialled_at is None:
            entry.due_at, entry.failures = now, 0

    def failed(self, address: Address, now: float) -> None:
        """A dial failed: the next wait doubles, with jitter, up to the bound."""
        entry = self._entries.get(address)
        if entry is None:
            return
        settings = self._settings
        longest = settings.redial_max_s if entry.member else settings.candidate_max_s
        wait_s = min(longest, settings.redial_s * 2.0 ** min(entry.failures, 16))
        entry.failures += 1
        entry.dialled_at = None
        entry.due_at = now + wait_s * self._rng.between(0.75, 1.0)

    def refuse(self, address: Address) -> None:
        """Never dial ``address`` again: it is this node itself."""
        self._entries.pop(address, None)
        self._never[address] = None
        if len(self._never) > self._settings.candidates_max:
            del self._never[next(iter(self._never))]

    def disown(self, address: Address) -> None:
        """Whoever was at ``address`` has left: what is seen there now is anybody's, and dialled."""
        entry = self._entries.get(address)
        if entry is not None:
            entry.owner, entry.member = None, False

    def owner_of(self, address: Address) -> NodeId | None:
        """Return the node that ``address`` was last known to be."""
        entry = self._entries.get(address)
        return None if entry is None else entry.owner

    def due(self, now: float, unwanted: Container[NodeId]) -> list[Address]:
        """Return the addresses to dial now, and count them as in flight.

        ``unwanted`` holds the nodes that need no dial: linked already, or left.
        """
        flying, free = self._in_flight(now), []
        for address, entry in self._entries.items():
            if entry.dialled_at is None and entry.due_at <= now:
                if entry.owner is not None and (entry.owner in flying or entry.owner in unwanted):
                    continue
                free.append((entry.due_at, not entry.member, address))
        chosen: list[Address] = []
        room = self._settings.dials_max - self._count_in_flight(now)
        for _, _, address in sorted(free):
            entry = self._entries[address]
            if len(chosen) >= room or (entry.owner is not None and entry.owner in flying):
                continue
            entry.dialled_at = now
            if entry.owner is not None:
                flying.add(entry.owner)
            chosen.append(address)
        return chosen

    def deadline(self, now: float, unwanted: Container[NodeId]) -> float | None:
        """Return when `due` may next have something to say."""
        deadlines = [
            entry.due_at if entry.dialled_at is None else entry.dialled_at + self._settings.dial_bound_s
            for entry in self._entries.values()
            if entry.dialled_at is not None or entry.owner is None or entry.owner not in unwanted
        ]
        earliest = min(deadlines, default=None)
        return None if earliest is None else max(earliest, now + self._settings.redial_s / 4)

    def _in_flight(self, now: float) -> set[NodeId]:
        for entry in self._entries.values():
            if entry.dialled_at is not None and now >= entry.dialled_at + self._settings.dial_bound_s:
                entry.dialled_at = None
        return {e.owner for e in self._entries.values() if e.dialled_at is not None and e.owner is not None}

    def _count_in_flight(self, now: float) -> int:
        return sum(1 for entry in self._entries.values() if entry.dialled_at is not None)

    def _make_room(self) -> bool:
        """Drop the stranger that failed most often; proven members stay."""
        strangers = [
            (entry.failures, address)
            for address, entry in self._entries.items()
            if not entry.member and entry.dialled_at is None and entry.failures > 0
        ]
        if not strangers:
            return False
        del self._entries[max(strangers)[1]]
        return True
