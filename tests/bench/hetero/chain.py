"""DaisyChain on the machines of the rig: real agents that find each other, and one endless run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bench.hetero.journals import JournalTail, Line
from bench.hetero.marks import Mark
from rig.chain import RigChain
from rig.node import Place, RigNode
from support.waiting import until

LOADED_S = 180.0
LEFT_S = 30.0


class ChainTraining:
    """Nodes with the same job; they stand still but for their turns.

    Attributes:
        nodes: those that run; the first one's journal is the run's.
        tail: that journal.
    """

    name = "DaisyChain"

    def __init__(self, chain: RigChain, places: Sequence[Place], write: Callable[[Path], object]) -> None:
        """``write``: puts the job, or several, into a jobs folder."""
        self._chain = chain
        self.nodes: list[RigNode] = []
        for place in places:
            write(chain.prepare(place.name))
            self.nodes.append(chain.start(place, "--min-nodes", str(len(places))))
        self.tail = JournalTail(self.nodes[0].state, self._is_of_all)

    def start(self) -> None:
        """Wait until all of them train together."""
        until(self._trains, LOADED_S, "the chain does not train together")

    def leave(self) -> RigNode:
        """Have the last node leave in good order, and the others go on; return it."""
        gone = self.nodes.pop()
        gone.terminate()
        until(lambda: not gone.running, LEFT_S, f"{gone.name} does not leave")
        since = time.time()
        until(partial(self._trains, since), LEFT_S, f"the chain does not go on without {gone.name}")
        return gone

    def resume(self) -> None:
        """Have all of them go on."""
        for node in self.nodes:
            node.thaw()

    def pause(self) -> None:
        """Have agents and trainers stand still."""
        for node in self.nodes:
            node.freeze()

    def marks(self) -> list[list[Mark]]:
        """Return the marks of the run: steps of all the nodes together."""
        return [self.tail.marks()]

    def shares(self) -> list[int]:
        """Return the newest step's shares, in the world's order of ranks."""
        self.tail.read()
        return list(next(line["world"]["shares"] for line in reversed(self.tail.lines) if "samples" in line))

    def _trains(self, since: float = 0.0) -> bool:
        return any(mark.at >= since for mark in self.tail.marks())

    def _is_of_all(self, line: Line) -> bool:
        return bool(line["world"]["size"] == len(self.nodes))
