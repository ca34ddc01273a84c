"""What is demanded of a chain once nothing goes wrong any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from daisychain.core.ids import RunId
from daisychain.core.jobs import JobCard, JobState
from daisychain.core.node import TrainerState
from daisychain.core.queue import age
from simulation.ends import Ends
from simulation.timeline import Timeline

if TYPE_CHECKING:
    from simulation.node import SimNode

TOGETHER_S = 40.0
"""Within so much of healing one node coordinates, and all train together from the greatest step on."""

LONG_S = 6.0
"""A run with more to compute than this is not waited for."""

ENDED_S = 40.0
"""Within so much more every run has ended everywhere."""

RESULTS_S = 60.0
"""Within so much more its result lies everywhere; what failed is tried again after up to 30 s."""


class Healing:
    """One chain from the moment on at which it is whole again.

    Attributes:
        greatest: for each run, the greatest step that some living trainer holds at that moment.
    """

    def __init__(self, nodes: Sequence[SimNode], ends: Ends, time: Timeline, step_s: float) -> None:
        self._nodes = nodes
        self._ends = ends
        self._time = time
        self._healed_at = time.now
        self._step_s = step_s
        self.greatest: dict[RunId, int] = {}
        for node in nodes:
            if node.trainer is not None:
                run_id = node.trainer.run_id
                self.greatest[run_id] = max(self.greatest.get(run_id, 0), node.trainer.step)

    def demand_agreement(self) -> list[RunId]:
        """Demand that all agree on what goes on and what is paused; return the latter."""
        self._within(TOGETHER_S, self._agreed, "not of one mind of what is paused")
        return sorted({c.run_id for node in self._nodes for c in node.cards() if c.state is JobState.PAUSED})

    def _agreed(self) -> bool:
        books = [
            {
                card.run_id: (card.state is JobState.PAUSED, card.revision)
                for card in node.cards()
                if not card.state.ended
            }
            for node in self._nodes
        ]
        return self._led() and all(book == books[0] for book in books)

    def demand_together(self) -> float:
        """Demand that all come together; return the seconds that it took."""
        self._within(TOGETHER_S, self.together, "not together again")
        return self._time.now - self._healed_at

    def long(self) -> list[RunId]:
        """Return the runs whose end would take long."""
        cards = [card for node in self._nodes for card in node.cards() if not card.state.ended]
        going = {card.run_id: self._ends.steps[card.run_id] - card.step for card in cards}
        return sorted(run_id for run_id, left in going.items() if left * self._step_s > LONG_S)

    def demand_end(self) -> None:
        """Demand that every run ends on every node, as it should."""
        self._within(ENDED_S, self.ended, "not at its end")
        for node in self._nodes:
            for card in node.cards():
                wrong = self._ends.objection(card)
                if wrong:
                    self._time.fail(f"on {node.name} {wrong}")

    def demand_results(self) -> None:
        """Demand that the result of each job's last finished run lies on every node, the same on all."""
        self._within(RESULTS_S, self._same_results, "the results are not everywhere")

    def _same_results(self) -> bool:
        finished: dict[str, JobCard] = {}
        for node in self._nodes:
            for card in sorted((c for c in node.cards() if c.state is JobState.FINISHED), key=age):
                finished[card.digest] = max(card, finished.get(card.digest, card), key=age)
        return all(self._same_result(card) for card in finished.values())

    def _same_result(self, card: JobCard) -> bool:
        """Whether all that have the job's folder have one result; true when no node kept any."""
        having = [node for node in self._nodes if any(job.digest == card.digest for job in node.jobs)]
        held = {node.disk.results.get(card.digest) for node in having}
        kept = {result for result in held if result is not None and result.run_id == card.run_id}
        return not kept or (held == kept and len(kept) == 1)

    def together(self) -> bool:
        """Whether one node leads, all follow it, and what is trained goes on at the greatest step."""
        return (self._all_in_one_world() or self._all_ended()) and self._led()

    def ended(self) -> bool:
        """Whether one node leads, all follow it, and every run has ended everywhere."""
        return self._all_ended() and self._led()

    def _within(self, bound_s: float, done: Callable[[], bool], what: str) -> None:
        looked_at = self._time.now

        def look() -> bool:
            nonlocal looked_at
            if self._time.now < looked_at + 0.1:
                return False
            looked_at = self._time.now
            return done()

        if not self._time.run(looked_at + bound_s, look):
            self._time.fail(f"{what} within {bound_s:g} s: {self._state()}")

    def _led(self) -> bool:
        machines = [(node.machine, node.clock()) for node in self._nodes if node.machine is not None]
        views = [machine.view(now) for machine, now in machines]
        heads = {(view.term, view.coordinator) for view in views}
        return (
            len(views) == len(self._nodes)
            and all(term.node_id == leader for term, leader in heads)
            and len(heads) == 1
        )

    def _all_in_one_world(self) -> bool:
        """Whether all train in one world, but for those that the run failed on, or has no room for."""
        trainers = [node.trainer for node in self._nodes if not _stands_by(node)]
        inside = [trainer for trainer in trainers if trainer is not None and trainer.room is not None]
        rooms = {trainer.room for trainer in inside}
        room = next(iter(rooms), None)
        if len(rooms) != 1 or room is None or not room.formed or room.broken:
            return False
        if len(inside) != min(len(trainers), self._most(inside[0].run_id) or len(trainers)):
            return False
        return all(trainer.step >= self.greatest.get(trainer.run_id, 0) for trainer in inside)

    def _most(self, run_id: RunId) -> int:
        return max(card.max_nodes for node in self._nodes for card in node.cards() if card.run_id == run_id)

    def _all_ended(self) -> bool:
        return all(card.state.ended for node in self._nodes for card in node.cards())

    def _state(self) -> str:
        lines = [f"greatest steps {self.greatest}"]
        for node in self._nodes:
            if node.machine is not None:
                view = node.machine.view(node.clock())
                leader = view.coordinator and view.coordinator[-2:]
                why = view.standby or view.waiting
                lines.append(f"{node.name}: led by {leader}, term {view.term}, {view.trainer} {why}")
        return "\n".join(lines)


def _stands_by(node: SimNode) -> bool:
    """Whether the run failed on this node, and so may go on without it."""
    return node.told is not None and node.told.status.trainer.state is TrainerState.FAILED
