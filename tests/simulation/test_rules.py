"""Hypothesis looks for a sequence of faults that breaks a promise, and shrinks it."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from simulation.chain import Plan, SimChain
from simulation.network import Weather

NODES = st.integers(0, 3)
STEPS = 40
TIMES = st.sampled_from([0.0, 0.001, 0.02, 0.1, 0.5, 1.2, 3.0])


class ChainRules(RuleBasedStateMachine):
    """Everything that can be done to a chain of up to four nodes; every event is checked."""

    chain: SimChain

    @initialize(
        seed=st.integers(0, 1 << 16),
        nodes=st.integers(1, 4),
        lost=st.sampled_from([0.0, 0.05, 0.2]),
        trained_s=st.sampled_from([0.0, 3.5, 4.0]),
    )
    def begin(self, seed: int, nodes: int, lost: float, trained_s: float) -> None:
        weather = Weather(lost=lost, twice=0.1 if lost else 0.0)
        self.chain = SimChain(Plan(seed, nodes, steps=STEPS, weather=weather))
        for index in range(nodes):
            self.chain.start(index)
        self.chain.run_for(trained_s)

    def _index(self, number: int) -> int:
        return number % len(self.chain.nodes)

    @rule(seconds=TIMES)
    def time_passes(self, seconds: float) -> None:
        self.chain.run_for(seconds)

    @rule(node=NODES)
    def a_node_is_killed(self, node: int) -> None:
        self.chain.kill(self._index(node))

    @rule()
    def the_coordinator_is_killed(self) -> None:
        for leader in self.chain.leaders():
            leader.kill()

    @rule()
    def the_power_goes(self) -> None:
        self.chain.kill_all()

    @rule(node=NODES)
    def a_node_starts(self, node: int) -> None:
        self.chain.start(self._index(node))

    @rule(node=NODES)
    def a_node_leaves(self, node: int) -> None:
        self.chain.leave(self._index(node))

    @rule(node=NODES, agent_only=st.booleans())
    def a_node_is_frozen(self, node: int, agent_only: bool) -> None:
        self.chain.nodes[self._index(node)].freeze(agent_only)

    @rule(node=NODES)
    def a_node_is_thawed(self, node: int) -> None:
        self.chain.thaw(self._index(node))

    @rule(one=NODES, other=NODES)
    def a_way_is_cut(self, one: int, other: int) -> None:
        self.chain.cut(self._index(one), self._index(other))

    @rule(side=st.sets(NODES))
    def the_network_is_parted(self, side: set[int]) -> None:
        self.chain.partition({self._index(node) for node in side})

    @rule()
    def the_network_is_mended(self) -> None:
        self.chain.mend()

    @rule(one=NODES, other=NODES)
    def links_are_reset(self, one: int, other: int) -> None:
        self.chain.reset(self._index(one), self._index(other))

    @rule(node=NODES)
    def a_trainer_is_frozen(self, node: int) -> None:
        self.chain.freeze_trainer(self._index(node))

    @rule(node=NODES)
    def a_trainer_is_thawed(self, node: int) -> None:
        self.chain.thaw_trainer(self._index(node))

    @rule(ahead=st.integers(3, 6))
    def a_sample_is_spoilt(self, ahead: int) -> None:
        step = self.chain.newest_step() + ahead
        if step <= STEPS and not self.chain.settled():
            self.chain.spoil_sample(step)

    @rule(node=NODES, ahead=st.integers(1, 3))
    def a_node_cannot_compute_its_part(self, node: int, ahead: int) -> None:
        self.chain.spoil_on(self._index(node), self.chain.newest_step() + ahead)
        self.chain.may_fail.add(self.chain.first.run_id)

    @rule(node=NODES)
    def a_job_is_cancelled(self, node: int) -> None:
        card = self.chain.first
        self.chain.cancel(self._index(node), card.run_id)

    @rule(node=NODES)
    def a_job_is_paused(self, node: int) -> None:
        self.chain.pause(self._index(node), self.chain.nodes[0].jobs[0].run_id)

    @rule(node=NODES)
    def a_job_is_resumed(self, node: int) -> None:
        self.chain.resume(self._index(node), self.chain.nodes[0].jobs[0].run_id)

    @rule(node=NODES)
    def a_job_is_tried_again(self, node: int) -> None:
        self.chain.retry(self._index(node))

    def teardown(self) -> None:
        """Once healed, one node coordinates and the job has ended on every node."""
        self.chain.must_settle()


ChainRules.TestCase.settings = settings(
    max_examples=300,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
TestChainRules = ChainRules.TestCase
