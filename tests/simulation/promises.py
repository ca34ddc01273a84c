"""What must hold at every moment, whatever goes wrong; looked at whenever something changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daisychain.core.ids import Generation, NodeId, RunId, Term
from daisychain.core.messages import Heartbeat
from daisychain.core.world import WorldPlan
from simulation.content import alone
from simulation.timeline import Timeline

if TYPE_CHECKING:
    from simulation.node import SimNode
    from simulation.rooms import Room
    from simulation.trainer import SimTrainer


class Promises:
    """The promises of one chain, restarts included.

    - A term (number, node id) is led by that very node, in one of its lives.
    - What a node tells is on its disk; its term never falls.
    - The generations that a node hands out rise, and so do those that its trainers enter.
    - A trainer is in one world at a time.
    - A trainer's steps never fall, and every committed step has one content: that of one process alone.
    """

    def __init__(self, time: Timeline) -> None:
        self._time = time
        self._leaders: dict[Term, tuple[NodeId, int]] = {}
        self._terms: dict[NodeId, Term] = {}
        self._issued: dict[NodeId, WorldPlan] = {}
        self._given: dict[NodeId, Generation] = {}
        self._rooms: dict[SimTrainer, Room] = {}
        self._newest: dict[RunId, int] = {}

    def tells(self, node: SimNode, heartbeat: Heartbeat, on_disk: Term) -> None:
        """A node tells its status."""
        term = heartbeat.status.term
        highest = self._terms.get(node.id)
        if highest is not None and term < highest:
            self._time.fail(f"{node.name} tells term {term} after {highest}")
        if term != on_disk:
            self._time.fail(f"{node.name} tells term {term} with {on_disk} on its disk")
        self._terms[node.id] = term
        if heartbeat.status.leading:
            if term.node_id != node.id:
                self._time.fail(f"{node.name} leads the term {term} of another node")
            holder = self._leaders.setdefault(term, (node.id, node.life))
            if holder != (node.id, node.life):
                self._time.fail(f"term {term} is led by {node.name} in two lives")

    def issues(self, node: SimNode, plan: WorldPlan) -> None:
        """A node hands out a plan, perhaps once more."""
        newest = self._issued.get(node.id)
        if plan.generation.term.node_id != node.id:
            self._time.fail(f"{node.name} hands out {plan.generation}, of a term of another node")
        if newest is not None and newest != plan and plan.generation <= newest.generation:
            self._time.fail(f"{node.name} hands out {plan.generation} after {newest.generation}")
        self._issued[node.id] = plan

    def gives(self, node: SimNode, plan: WorldPlan) -> None:
        """A node gives a plan to its trainer."""
        highest = self._given.get(node.id)
        if highest is not None and plan.generation <= highest:
            self._time.fail(f"{node.name} enters {plan.generation} after {highest}")
        self._given[node.id] = plan.generation

    def enters(self, trainer: SimTrainer, room: Room) -> None:
        """A trainer connects to the other members of a world."""
        before = self._rooms.get(trainer)
        if trainer.room is not None or (before is not None and trainer in before.inside):
            self._time.fail(
                f"the trainer of {trainer.node.name} enters {room.generation} out of another world"
            )
        self._rooms[trainer] = room

    def holds(self, trainer: SimTrainer, step: int, content: str) -> None:
        """A trainer's model is at ``step`` now."""
        name = trainer.node.name
        self._newest[trainer.run_id] = max(step, self.newest_step(trainer.run_id))
        if step < trainer.step:
            self._time.fail(f"{name} falls from step {trainer.step} to {step}")
        if content != alone(trainer.run_id, step):
            self._time.fail(f"{name} has another content of step {step} of {trainer.run_id} than one process")

    def newest_step(self, run_id: RunId) -> int:
        """Return the greatest step of a run that any trainer ever held."""
        return self._newest.get(run_id, 0)
