"""A whole simulated chain: nodes, network, and all that can be done to them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from daisychain.core.events import CancelAsked, LeaveAsked, PauseAsked, SubmitAsked
from daisychain.core.ids import RunId
from daisychain.core.jobs import JobCard, JobState
from daisychain.core.settings import CoreSettings
from simulation.ends import Ends
from simulation.healing import Healing
from simulation.liveness import Liveness
from simulation.network import Network, Weather
from simulation.node import MachineMaker, SimNode, make_machine
from simulation.promises import Promises
from simulation.rooms import Rooms
from simulation.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Plan:
    """What is simulated.

    ``max_nodes``: of the first job; 0 = as many as there are.
    ``wrong_clocks``: the nodes disagree by years on the day, and so on when a job was submitted.
    ``dropped_on``: the nodes that have the job's folder from the start; None = all of them.
    """

    seed: int
    nodes: int
    steps: int = 30
    step_s: float = 0.08
    weather: Weather = Weather()  # noqa: RUF009 - frozen
    settings: CoreSettings = CoreSettings()  # noqa: RUF009 - frozen
    wrong_clocks: bool = False
    max_nodes: int = 0
    dropped_on: tuple[int, ...] | None = None


class SimChain:
    """The chain and everything that can be done to it."""

    def __init__(self, plan: Plan, make: MachineMaker = make_machine) -> None:
        self.time = Timeline(plan.seed)
        self.network = Network(self.time, plan.weather)
        self.step_s = plan.step_s
        self._rooms = Rooms(self.network, self.time, Promises(self.time), plan.step_s)
        self._settings = plan.settings
        self._wrong_clocks = plan.wrong_clocks
        self.nodes = [
            SimNode(index, self.network, self._rooms, self.time, make) for index in range(plan.nodes)
        ]
        self._steps: dict[RunId, int] = {}
        self.jobs: list[JobCard] = []
        self._healed = False
        self._paused = False
        self.cancelled: set[RunId] = set()
        self.may_fail: set[RunId] = set()  # a node that fails at it may be alone just then
        self.bad = self._rooms.bad
        Liveness(self.nodes, self.network, self.time)
        self.first = self.add_job("digits", plan.steps, 1.0, plan.max_nodes, plan.dropped_on)

    # -- what is done to it ------------------------------------------------------------------------

    def add_job(
        self,
        name: str,
        steps: int,
        submitted_at: float,
        max_nodes: int = 0,
        dropped_on: tuple[int, ...] | None = None,
    ) -> JobCard:
        """Put a job into the folder of every node, or of these (seen by those that start later)."""
        card = JobCard(RunId(f"{name}-1"), name, f"digest of {name}", submitted_at, max_nodes=max_nodes)
        self._steps[card.run_id] = steps
        self.jobs.append(card)
        for index, node in enumerate(self.nodes):
            node.steps = self._steps
            if dropped_on is not None and index not in dropped_on:
                continue
            off_s = -1e6 * (index * 7 % 5) if self._wrong_clocks else 0.0
            node.jobs = (*node.jobs, replace(card, submitted_at=submitted_at + off_s))
        return card

    def start(self, index: int) -> None:
        """Start a node; it knows the addresses of all the others."""
        node = self.nodes[index]
        others = [other.info.address for other in self.nodes if other is not node]
        node.start(self._settings, others)

    def kill(self, index: int) -> None:
        """SIGKILL a node."""
        self.nodes[index].kill()

    def kill_all(self) -> None:
        """The power fails everywhere."""
        for node in self.nodes:
            node.kill()

    def kill_amid(self, index: int, effects: int) -> None:
        """Kill a node in the middle of what it does next, after so many effects of it."""
        if self.nodes[index].up:
            self.time.tell(f"n{index} will be killed after {effects} more effects")
            self.nodes[index].fuse = effects

    def sleep(self, index: int) -> None:
        """A machine sleeps, and so does its clock."""
        self.nodes[index].freeze(clock_too=True)

    def leap(self, index: int, seconds: float) -> None:
        """The clock of a node leaps ahead."""
        self.nodes[index].leap(seconds)

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

    def cut_pair(self, one: int, other: int) -> None:
        """Let nothing pass between two nodes; both reach everybody else."""
        self.cut(one, other)
        self.cut(other, one)

    def mend_pair(self, one: int, other: int) -> None:
        """Let everything pass between two nodes."""
        self.time.tell(f"n{one} - n{other} is mended")
        self.network.mend((self.nodes[one].id, self.nodes[other].id))

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
        self._hurt(one, other)
        self.network.reset(self.nodes[one].id, self.nodes[other].id)

    def freeze_trainer(self, index: int) -> None:
        """SIGSTOP a trainer alone."""
        trainer = self.nodes[index].trainer
        if trainer is not None and not trainer.frozen:
            self.time.tell(f"the trainer of n{index} is frozen")
            self._hurt(index)
            trainer.frozen = True

    def thaw_trainer(self, index: int) -> None:
        """SIGCONT a trainer."""
        node = self.nodes[index]
        if node.trainer is not None and node.trainer.frozen and not node.frozen:
            self.time.tell(f"the trainer of n{index} is thawed")
            self._hurt(index)
            node.trainer.thaw()

    def kill_trainer(self, index: int) -> None:
        """SIGKILL a trainer alone."""
        trainer = self.nodes[index].trainer
        if trainer is not None:
            self.time.tell(f"the trainer of n{index} is killed")
            self._hurt(index)
            trainer.exit("killed by signal 9")

    def spoil_sample(self, step: int) -> None:
        """Put a sample into ``step`` of the first job that no node can compute."""
        self.time.tell(f"a sample of step {step} is spoilt")
        self.bad.samples.add((self.first.run_id, step))

    def spoil_on(self, index: int, step: int) -> None:
        """Have a node fail whenever it computes a part of ``step`` of the first job."""
        self.time.tell(f"n{index} cannot compute its part of step {step}")
        self.bad.fail_on(self.nodes[index].id, self.first.run_id, step)

    def newest_step(self) -> int:
        """Return the greatest step of the first job that any trainer ever held."""
        return self._rooms.promises.newest_step(self.first.run_id)

    def rescan(self, index: int) -> None:
        """A node looks into its jobs folder."""
        self.nodes[index].look()

    def submit(self, index: int, card: JobCard) -> None:
        """A user queues a run on one node; whoever has its folder looks there."""
        self._hurt(*range(len(self.nodes)))
        for other in range(len(self.nodes)):
            self.rescan(other)
        self.nodes[index].post(SubmitAsked(card))

    def cancel(self, index: int, run_id: RunId) -> None:
        """A user cancels a run on one node."""
        self.time.tell(f"n{index} is asked to cancel {run_id}")
        self.cancelled.add(run_id)
        self.nodes[index].post(CancelAsked(run_id))

    def pause(self, index: int, run_id: RunId) -> None:
        """A user pauses a run on one node."""
        self.time.tell(f"n{index} is asked to pause {run_id}")
        self._hurt(*range(len(self.nodes)))
        self._paused = True
        self.nodes[index].post(PauseAsked(run_id, paused=True))

    def resume(self, index: int, run_id: RunId) -> None:
        """A user has a run go on, asking one node."""
        self.time.tell(f"n{index} is asked to resume {run_id}")
        self._hurt(*range(len(self.nodes)))
        self.nodes[index].post(PauseAsked(run_id, paused=False))

    def retry(self, index: int) -> None:
        """A user queues the last run that a node knows to have ended once more."""
        cards = self.nodes[index].cards()
        going = {card.digest for card in cards if not card.state.ended}
        ended = [card for card in cards if card.state.ended and card.digest not in going]
        if not ended:
            return
        name, _, number = ended[-1].run_id.rpartition("-")
        run_id = RunId(f"{name}-{int(number) + 1}")
        self._steps[run_id] = self._steps[ended[-1].run_id]
        self.time.tell(f"n{index} is asked to run {run_id}")
        self.submit(
            index, replace(ended[-1], run_id=run_id, state=JobState.QUEUED, reason="", step=0, revision=0)
        )

    def becalm(self, weather: Weather) -> None:
        """A storm ends, unless all was healed before."""
        if not self._healed:
            self.time.tell("the storm ends")
            self.network.weather = weather

    def heal(self) -> None:
        """End every fault: all nodes run, nothing is cut."""
        self._healed = True
        self.network.weather = Weather()
        self.mend()
        for index, node in enumerate(self.nodes):
            node.fuse = None
            self.thaw(index)
            self.thaw_trainer(index)
            if not node.up:  # also one that was asked to leave while it was frozen
                self.start(index)

    def run_for(self, seconds: float) -> None:
        """Let time pass."""
        self.time.run(self.time.now + seconds)

    def _hurt(self, *indexes: int) -> None:
        for index in indexes:
            self.nodes[index].hurts += 1

    def leaders(self) -> list[SimNode]:
        """Return the nodes that lead, as they told."""
        return [node for node in self.nodes if node.up and node.told and node.told.status.leading]

    # -- what is promised once it is whole again ------------------------------------------------------

    def must_settle(self) -> float:
        """Heal, then demand what `Healing` does; return the seconds until all are together again.

        Runs that would still take long are cancelled then.
        """
        self.heal()
        healing = self._healing()
        if self._paused:
            for place, run_id in enumerate(healing.demand_agreement()):
                self.resume(place % len(self.nodes), run_id)
        together_s = healing.demand_together()
        for run_id in healing.long():
            self.cancel(0, run_id)
        healing.demand_end()
        healing.demand_results()
        return together_s

    def settled(self) -> bool:
        """Whether one node leads, all follow it, and every run has ended everywhere."""
        return self._healing().ended()

    def _healing(self) -> Healing:
        ends = Ends(self._steps, self.cancelled, self.may_fail, self.bad)
        return Healing(self.nodes, ends, self.time, self.step_s)
