"""Whoever can train does: a group of sound nodes that is cut off from the rest commits steps on its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from daisychain.core.jobs import JobState
from simulation.network import Network
from simulation.timeline import Timeline

if TYPE_CHECKING:
    from simulation.node import SimNode

LOOK_S = 0.5
LIVELY_S = 25.0
"""A group commits a step within so much of the moment from which on nothing disturbs it."""


@dataclass(slots=True)
class _Mark:
    since: float
    commits: int


class Liveness:
    """Looks twice a second at every group of nodes that reach each other and nobody else.

    While all its members are sound, and a run of which one of them has the folder goes on and is not paused,
    such a group has to commit steps: a lone node, either half of a parted chain, or the whole of it.
    """

    def __init__(self, nodes: Sequence[SimNode], network: Network, time: Timeline) -> None:
        self._nodes = nodes
        self._network = network
        self._time = time
        self._marks: dict[tuple[tuple[str, int, int], ...], _Mark] = {}
        time.after(LOOK_S, self._look)

    def _look(self) -> None:
        self._time.after(LOOK_S, self._look)
        marks = {}
        for group in self._groups():
            key = tuple((node.name, node.life, node.hurts) for node in group)
            commits = sum(node.commits for node in group)
            mark = self._marks.get(key)
            if mark is None or mark.commits != commits or not _wanting(group):
                mark = _Mark(self._time.now, commits)
            elif self._time.now > mark.since + LIVELY_S:
                names = ", ".join(node.name for node in group)
                self._time.fail(f"{names}: no step in {LIVELY_S:g} s, though nothing holds them up")
            marks[key] = mark
        self._marks = marks

    def _groups(self) -> list[list[SimNode]]:
        """Return the groups that are closed, complete and sound."""
        up = [node for node in self._nodes if node.up and not node.frozen]
        groups, seen = [], set[str]()
        for node in up:
            if node.name in seen:
                continue
            group = [other for other in up if self._touches(node, other)]
            seen.update(other.name for other in group)
            if all(other.sound for other in group) and self._closed(group, up):
                groups.append(group)
        return groups

    def _touches(self, one: SimNode, other: SimNode) -> bool:
        network = self._network
        return one is other or network.open(one.id, other.id) or network.open(other.id, one.id)

    def _closed(self, group: list[SimNode], up: list[SimNode]) -> bool:
        """Whether its members reach each other both ways, and nobody else in any way."""
        if not self._network.all_open([node.id for node in group]):
            return False
        inside = {node.name for node in group}
        outside = [node for node in up if node.name not in inside]
        return not any(self._touches(one, other) for one in group for other in outside)


def _wanting(group: list[SimNode]) -> bool:
    """Whether some run has not ended, nor is paused, whose folder one of them has."""
    held = {card.digest for node in group for card in node.jobs}
    going = (JobState.QUEUED, JobState.RUNNING)
    return any(card.state in going and card.digest in held for node in group for card in node.cards())
