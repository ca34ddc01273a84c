"""The simulated gloo: a room per generation, which works only while all its members do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from daisychain.core.ids import Generation
from daisychain.core.world import WorldPlan
from simulation.content import following
from simulation.network import Network
from simulation.parts import BadParts
from simulation.promises import Promises
from simulation.timeline import Timeline
from simulation.trainer import SimTrainer

RETRY_S = 0.1


def donor_of(inside: Sequence[SimTrainer]) -> SimTrainer:
    """Return whose state all members take: that of the most advanced one."""
    return max(inside, key=lambda trainer: (trainer.step, trainer.node.id))


class Room:
    """One process group: forms when all members are there, steps while all can, breaks when one goes."""

    def __init__(
        self, plan: WorldPlan, network: Network, time: Timeline, step_s: float, bad: BadParts
    ) -> None:
        self.generation = plan.generation
        self.formed = False
        self.broken = False
        self.inside: list[SimTrainer] = []
        self._plan = plan
        self._bad = bad
        self._network = network
        self._time = time
        self._step_s = step_s

    def enter(self, trainer: SimTrainer) -> None:
        """A member published what it needs and connects to the others."""
        if self.broken:
            return
        trainer.room = self
        self.inside.append(trainer)
        if len(self.inside) == self._plan.world_size:
            self._time.after(0.003, self._connect)

    def left(self, trainer: SimTrainer) -> None:
        """A member closed its sockets: the others of a formed room notice, as far as packets pass."""
        self.broken = True
        if trainer in self.inside:
            self.inside.remove(trainer)
        if not self.formed:
            return
        for other in list(self.inside):
            if self._network.open(trainer.node.id, other.node.id):
                self._time.after(self._time.random.uniform(0.0005, 0.005), partial(other.notice, self))

    def flows(self) -> bool:
        """Whether data comes: the world stands, and no member holds up the others."""
        return self.formed and self._together()

    def _together(self) -> bool:
        """Whether every member takes part and reaches every other one."""
        if self.broken or any(t.dead or t.frozen or t.room is not self for t in self.inside):
            return False
        return self._network.all_open([trainer.node.id for trainer in self.inside])

    def _connect(self) -> None:
        if self.broken or self.formed:
            return
        if not self._together():
            self._time.after(RETRY_S, self._connect)
            return
        self.formed = True
        donor = donor_of(self.inside)
        step, content = donor.step, donor.content
        for trainer in self.inside:
            trainer.formed(self, step, content)
        self._time.after(self._step_s, self._begin)

    def _begin(self) -> None:
        """Every member holds the step's whole gradient: the riders complete one after the other."""
        if self.broken:
            return
        if not self._together():
            self._time.after(RETRY_S, self._begin)
            return
        states = {(trainer.step, trainer.content) for trainer in self.inside}
        if len(states) != 1:
            self._time.fail(f"world {self.generation} steps with members at {sorted(states)}")
        step, content = states.pop()
        step += 1
        if step > self.inside[0].steps:
            return
        failing = self._failing(step)
        for trainer in failing:
            trainer.fail(step)
        if failing:
            return
        content = following(content, step, [trainer.part() for trainer in self.inside])
        last_s = 0.0
        for trainer in self.inside:
            trainer.prepared = (step, content)
            delay_s = self._time.random.uniform(0.0, 0.004)
            last_s = max(last_s, delay_s)
            self._time.after(delay_s, partial(self._commit, trainer, step))
        self._time.after(max(self._step_s, last_s + 1e-6), self._begin)

    def _failing(self, step: int) -> list[SimTrainer]:
        """Return the members whose part of ``step`` cannot be computed."""
        landing = self._time.random.randrange(len(self.inside)) if self._bad.samples else 0
        return [self.inside[rank] for rank in self._bad.failing(step, self.inside, landing)]

    def _commit(self, trainer: SimTrainer, step: int) -> None:
        def commit() -> None:
            if trainer.room is self and trainer.step == step - 1:
                trainer.commit(self, step)

        trainer.do(commit)  # one that is frozen just now commits when it thaws


class Rooms:
    """Every room by its generation: the nonce and the member list keep strangers out.

    Attributes:
        bad: the parts that cannot be computed in any of them.
    """

    def __init__(self, network: Network, time: Timeline, promises: Promises, step_s: float) -> None:
        self.promises = promises
        self.bad = BadParts()
        self._network = network
        self._time = time
        self._step_s = step_s
        self._rooms: dict[Generation, tuple[WorldPlan, Room]] = {}

    def join(self, trainer: SimTrainer, plan: WorldPlan) -> None:
        """A member has everybody's blobs."""
        known = self._rooms.get(plan.generation)
        if known is None:
            known = self._rooms[plan.generation] = (
                plan,
                Room(plan, self._network, self._time, self._step_s, self.bad),
            )
        if known[0] != plan:
            self._time.fail(f"two worlds under one generation {plan.generation}")
        self.promises.enters(trainer, known[1])
        known[1].enter(trainer)
