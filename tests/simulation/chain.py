"""A whole simulated chain: nodes, network, faults, and the promises checked after every event."""

from __future__ import annotations

from dataclasses import dataclass, field

from daisychain.core.events import CancelAsked, JobsScanned, LeaveAsked, SubmitAsked
from daisychain.core.ids import NodeId, RunId, Term
from daisychain.core.jobs import JobCard, JobState
from daisychain.core.settings import CoreSettings
from simulation.network import Network, Weather
from simulation.node import MachineMaker, SimNode, make_machine
from simulation.parts import WHY
from simulation.rooms import Rooms
from simulation.timeline import Timeline

HEALING_BOUND_S = 40.0


@dataclass(slots=True)
class Plan:
    """What is simulated."""

    seed: int
    nodes: int
    steps: int = 30
    step_s: float = 0.08
    weather: Weather = field(default_factory=Weather)
    settings: CoreSettings = field(default_factory=CoreSettings)


class SimChain:
    """The chain and everything that can be done to it."""

    def __init__(self, plan: Plan, make: MachineMaker = make_machine) -> None:
        self.time = Timeline(plan.seed)
        self.network = Network(self.time, plan.weather)
        self._rooms = Rooms(self.network, self.time, plan.step_s)
        self._settings = plan.settings
        self.nodes = [
            SimNode(index, self.network, self._rooms, self.time, make) for index in range(plan.nodes)
        ]
        self._leaders: dict[Term, tuple[NodeId, int]] = {}
        self._steps: dict[RunId, int] = {}
        self.cancelled: set[RunId] = set()
        self.may_fail: set[RunId] = set()  # a node that fails at it may be alone just then
        self.bad = self._rooms.bad
        self._ticks: dict[int, tuple[object, int]] = {}
        self.time.after_each = self.check
        self.add_job("digits", plan.steps, 1.0)

    # -- what is done to it ------------------------------------------------------------------------

    def add_job(self, name: str, steps: int, submitted_at: float) -> JobCard:
        """Put a job into the folder of every node (seen by those that start later)."""
        card = JobCard(RunId(f"{name}-1"), name, f"digest of {name}", submitted_at)
        self._steps[card.run_id] = steps
        for node in self.nodes:
            node.jobs = (*node.jobs, card)
            node.steps = self._steps
        return card

    def start(self, index: int) -> None:
        """Start a node; it knows the addresses of all the others."""
        node = self.nodes[index]
        others = [other.info.address for other in self.nodes if other is not node]
        node.start(self._settings, others)

    def kill(self, index: int) -> None:
        """SIGKILL a node."""
        self.nodes[index].kill()

    def freeze(self, index: int) -> None:
        """SIGSTOP a node."""
        self.nodes[index].freeze()

    def freeze_agent(self, index: int) -> None:
        """SIGSTOP an agent alone: its trainer goes on."""
        self.nodes[index].freeze(agent_only=True)

    def thaw(self, index: int) -> None:
        """SIGCONT a node."""
        self.nodes[index].thaw()

    def leave(self, index: int) -> None:
        """SIGTERM a node."""
        self.nodes[index].post(LeaveAsked("asked to"))

    def cut(self, one: int, other: int) -> None:
        """Let nothing pass from one node to another."""
        self.time.tell(f"cut n{one} -> n{other}")
        self.network.cut(self.nodes[one].id, self.nodes[other].id)

    def partition(self, side: set[int]) -> None:
        """Let nothing pass between the nodes of ``side`` and the others."""
        self.time.tell(f"partition {sorted(side)}")
        for one in range(len(self.nodes)):
            for other in range(len(self.nodes)):
                if (one in side) != (other in side):
                    self.network.cut(self.nodes[one].id, self.nodes[other].id)

    def mend(self) -> None:
        """Let everything pass."""
        self.time.tell("the network is whole")
        self.network.mend()

    def reset(self, one: int, other: int) -> None:
        """Reset the links between two nodes."""
        self.time.tell(f"reset n{one} - n{other}")
        self.network.reset(self.nodes[one].id, self.nodes[other].id)

    def freeze_trainer(self, index: int) -> None:
        """SIGSTOP a trainer alone."""
        trainer = self.nodes[index].trainer
        if trainer is not None and not trainer.frozen:
            self.time.tell(f"the trainer of n{index} is frozen")
            trainer.frozen = True

    def thaw_trainer(self, index: int) -> None:
        """SIGCONT a trainer."""
        node = self.nodes[index]
        if node.trainer is not None and node.trainer.frozen and not node.frozen:
            self.time.tell(f"the trainer of n{index} is thawed")
            node.trainer.thaw()

    def kill_trainer(self, index: int) -> None:
        """SIGKILL a trainer alone."""
        trainer = self.nodes[index].trainer
        if trainer is not None:
            self.time.tell(f"the trainer of n{index} is killed")
            trainer.exit("killed by signal 9")

    def spoil_sample(self, step: int) -> None:
        """Put a sample into ``step`` of the first job that no node can compute."""
        self.time.tell(f"a sample of step {step} is spoilt")
        self.bad.samples.add((self.nodes[0].jobs[0].run_id, step))

    def spoil_on(self, index: int, step: int) -> None:
        """Have a node fail whenever it computes a part of ``step`` of the first job."""
        self.time.tell(f"n{index} cannot compute its part of step {step}")
        self.bad.fail_on(self.nodes[index].id, self.nodes[0].jobs[0].run_id, step)

    def newest_step(self) -> int:
        """Return the greatest step that any trainer has committed."""
        return max((node.trainer.step for node in self.nodes if node.trainer is not None), default=0)

    def rescan(self, index: int) -> None:
        """A node looks into its jobs folder."""
        self.nodes[index].post(JobsScanned(self.nodes[index].jobs))

    def submit(self, index: int, card: JobCard) -> None:
        """A user queues a run on one node; the others have its folder too."""
        for other in range(len(self.nodes)):
            self.rescan(other)
        self.nodes[index].post(SubmitAsked(card))

    def cancel(self, index: int, run_id: RunId) -> None:
        """A user cancels a run on one node."""
        self.time.tell(f"n{index} is asked to cancel {run_id}")
        self.cancelled.add(run_id)
        self.nodes[index].post(CancelAsked(run_id))

    def heal(self) -> None:
        """End every fault: all nodes run, nothing is cut."""
        self.network.weather = Weather()
        self.mend()
        for index, node in enumerate(self.nodes):
            self.thaw(index)
            self.thaw_trainer(index)
            if not node.up:  # also one that was asked to leave while it was frozen
                self.start(index)

    def run_for(self, seconds: float) -> None:
        """Let time pass."""
        self.time.run(self.time.now + seconds)

    # -- what is promised --------------------------------------------------------------------------

    def check(self) -> None:
        """Check what must hold after every event."""
        for index, node in enumerate(self.nodes):
            told = node.told
            if told is not None and told.status.leading:
                term = told.status.term
                if term.node_id != node.id:
                    self.time.fail(f"{node.name} leads the term {term} of another node")
                holder = self._leaders.setdefault(term, (node.id, node.life))
                if holder != (node.id, node.life):
                    self.time.fail(f"term {term} is led by {node.name} in two lives")
            trainer = node.trainer
            if trainer is not None:
                known = self._ticks.get(index)
                if known is not None and known[0] is trainer and trainer.step < known[1]:
                    self.time.fail(f"{node.name} fell from step {known[1]} to {trainer.step}")
                if known is None or known[0] is not trainer or known[1] != trainer.step:
                    self._ticks[index] = (trainer, trainer.step)

    def leaders(self) -> list[SimNode]:
        """Return the nodes that lead, as they told."""
        return [node for node in self.nodes if node.up and node.told and node.told.status.leading]

    def settled(self) -> bool:
        """Whether one node leads, all follow it, and every run has ended everywhere."""
        up = [node for node in self.nodes if node.up]
        if not up:
            return False
        for node in up:
            if node.machine is None or node.frozen:
                return False
            view = node.machine.view(self.time.now)
            if view.coordinator is None or any(not card.state.ended for card in view.jobs):
                return False
        views = [node.machine.view(self.time.now) for node in up if node.machine is not None]
        return len({view.coordinator for view in views}) == 1 and len({view.term for view in views}) == 1

    def must_settle(self, bound_s: float = HEALING_BOUND_S) -> float:
        """Heal, then demand one coordinator and every run ended as it must; return the seconds it took.

        A run with a sample that no node can compute has failed, on every node and for that reason; any
        other one is finished, unless it is one of ``may_fail``.
        """
        self.heal()
        healed_at = self.time.now
        checked = healed_at

        def done() -> bool:
            nonlocal checked
            if self.time.now < checked + 0.1:
                return False
            checked = self.time.now
            return self.settled()

        if not self.time.run(healed_at + bound_s, done):
            self.time.fail(f"not settled {bound_s:g} s after healing: {self._state()}")
        for node in self.nodes:
            if node.machine is not None:
                for card in node.machine.view(self.time.now).jobs:
                    if card.state is JobState.FINISHED and card.step != self._steps[card.run_id]:
                        self.time.fail(f"{card.run_id} finished at step {card.step} on {node.name}")
                    self._must_have_ended(card, node.name)
        return self.time.now - healed_at

    def _must_have_ended(self, card: JobCard, name: str) -> None:
        """A run that a user cancelled may have ended in any way."""
        doomed = any(run_id == card.run_id for run_id, _ in self.bad.samples)
        fits = {JobState.FAILED} if doomed else {JobState.FINISHED}
        if card.run_id in self.may_fail:
            fits.add(JobState.FAILED)
        if card.run_id not in self.cancelled and card.state not in fits:
            self.time.fail(f"{card.run_id} is {card.state} on {name}: {card.reason}")
        if card.state is JobState.FAILED and WHY not in card.reason:
            self.time.fail(f"{card.run_id} failed on {name} for another reason: {card.reason}")

    def _state(self) -> str:
        lines = []
        for node in self.nodes:
            if node.machine is not None:
                view = node.machine.view(self.time.now)
                leader = view.coordinator and view.coordinator[-2:]
                why = view.standby or view.waiting
                lines.append(f"{node.name}: led by {leader}, term {view.term}, {view.trainer} {why}")
        return "\n".join(lines)
