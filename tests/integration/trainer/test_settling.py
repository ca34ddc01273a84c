"""Real worlds whose members begin with different states: one commit seen by some only, joiners, drift."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from daisychain.core.ids import RunId
from daisychain.errors import WorldError
from daisychain.trainer.engine.engine import Engine
from daisychain.trainer.engine.exchange import Alone, Pending
from daisychain.trainer.engine.timeline import Timeline
from daisychain.trainer.jobs.load import load_job
from daisychain.trainer.record.journal import Journal, StepLine, WorldInfo
from daisychain.trainer.state import transfer
from daisychain.trainer.state.reconcile import NobodySoundError
from daisychain.trainer.state.training_state import TrainingState
from daisychain.trainer.state.transfer import Prepared, Settled, Settling
from daisychain.trainer.world.group import FormedWorld, World
from daisychain.wire.job_yaml import parse_job
from support.formed_worlds import each, formed
from support.job_folders import regression_job
from support.plans import generation, plan

pytestmark = pytest.mark.integration

RUN = RunId("0" * 16 + "-1")


@dataclass
class Node:
    """One member: its state, its record, and what it has reduced and not committed."""

    state: TrainingState
    journal: Journal
    prepared: Prepared | None = None
    rounding: str = "alike"

    def prepare(self, counter: int = 1) -> Prepared:
        """Reduce the next step in the world of that ``counter``, and hold it."""
        engine = self.state.engine
        position = engine.timeline.position(self.state.step)
        reduced = engine.reduce_step(Alone(), position, (engine.units(position),))

        def commit() -> None:
            self.state.commit_step(reduced, generation(counter))
            world = WorldInfo(str(generation(counter)), 1, "node0", reduced.shares)
            self.journal.append(StepLine(self.state.step, 0, 1.0, position.samples, 0.01, world, 0.0))

        self.prepared = Prepared(self.state.tick + 1, generation(counter), commit)
        return self.prepared

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.prepare().commit()
        self.prepared = None

    def settling(self) -> Settling:
        return Settling(self.state, self.journal, self.rounding)

    def bits(self) -> bytes:
        return self.state.pack().payload.numpy().tobytes()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Node]]:
    path, modules = list(sys.path), set(sys.modules)
    folder = regression_job(tmp_path / "job", frozenset({"weighted", "schedule"}), epochs=5)
    spec = parse_job((folder / "job.yaml").read_text())
    found = []
    for index in range(3):
        job = load_job(folder, spec, torch.device("cpu"))
        engine = Engine(job, Timeline.of(spec, len(job.train), job.validation is not None))
        found.append(Node(TrainingState(RUN, engine), Journal(tmp_path / f"{index}.jsonl")))
    yield found
    for node in found:
        node.journal.close()
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]


def settle(
    nodes: Sequence[Node], counter: int = 1, settlings: Sequence[Settling] | None = None
) -> list[Settled]:
    """Form a world of ``nodes`` and have them come to one state; raises what broke the world first.

    Without ``settlings`` each node looks at its state ahead, as a trainer does while its world forms.
    """
    broke: list[WorldError] = []
    world_plan = plan(range(len(nodes)), counter)

    def act(world: FormedWorld) -> Settled:
        node = nodes[world.rank]
        if settlings is None:
            settling = node.settling()
            settling.look()
        else:
            settling = settlings[world.rank]
        try:
            return settling.settle(world, world_plan, node.prepared, 5.0)
        except WorldError as error:  # a trainer leaves the world, and so ends it for the others
            broke.append(error)
            world.abort(str(error))
            raise

    with formed(counter, len(nodes)) as worlds:
        futures = each(worlds, act)
        wait(futures, timeout=20)
        if broke:
            raise broke[0]
        found = [future.result(timeout=0) for future in futures]
    assert all(isinstance(one, Settled) for one in found)
    return found  # type: ignore[return-value]


def assert_alike(nodes: Sequence[Node], tick: int) -> None:
    assert {node.state.tick for node in nodes} == {tick}
    assert {node.journal.tick for node in nodes} == {tick}
    assert len({node.bits() for node in nodes}) == 1
    for node in nodes:
        assert [line.step for line in node.journal.lines()] == list(range(1, tick + 1))


def test_members_of_one_state_pass_nothing(nodes: list[Node]) -> None:
    for node in nodes:
        node.train(3)
    assert settle(nodes) == [Settled()] * 3


def test_a_commit_that_one_member_saw_is_applied_by_the_others_from_what_they_hold(nodes: list[Node]) -> None:
    """The rider of step 4 completed on node 0 alone; node 1 holds the reduction; node 2 has neither."""
    for node in nodes:
        node.train(3)
    nodes[0].train(1)
    nodes[1].prepare()
    settled = settle(nodes)
    assert [(one.applied, one.received) for one in settled] == [(False, False), (True, False), (False, True)]
    assert_alike(nodes, 4)


def test_what_another_world_reduced_for_the_same_step_is_not_applied(nodes: list[Node]) -> None:
    """A silent member holds step 4 of the world that gave it up; the others made theirs without it."""
    for node in nodes:
        node.train(3)
    nodes[2].prepare(counter=1)
    for node in nodes[:2]:
        node.prepare(counter=2).commit()
    settled = settle(nodes, counter=3)
    assert [(one.applied, one.received) for one in settled] == [(False, False), (False, False), (False, True)]
    assert_alike(nodes, 4)
    told = {
        line.world.generation for node in nodes for line in node.journal.lines() if isinstance(line, StepLine)
    }
    assert told == {str(generation(1)), str(generation(2))}
    assert list(nodes[2].journal.lines())[-1] == list(nodes[0].journal.lines())[-1]


def test_a_reduction_that_nobody_committed_is_dropped_and_done_again(nodes: list[Node]) -> None:
    for node in nodes:
        node.train(3)
        node.prepare()
    assert not any(one.applied or one.received for one in settle(nodes))
    assert_alike(nodes, 3)


def test_joiners_receive_the_state_and_the_lines_they_lack(nodes: list[Node]) -> None:
    nodes[1].train(6)
    nodes[2].train(2)
    settled = settle(nodes)
    assert [one.received for one in settled] == [True, False, True]
    assert_alike(nodes, 6)
    for node in nodes:
        node.train(2)
    assert_alike(nodes, 8)


def test_drift_is_found_told_and_repaired(nodes: list[Node]) -> None:
    for node in nodes:
        node.train(3)
    with torch.no_grad():
        next(nodes[0].state.engine.job.model.parameters()).mul_(1 + 1e-9)
    settled = settle(nodes)
    assert [one.drifted for one in settled] == [(0,)] * 3
    assert [one.received for one in settled] == [True, False, False]
    assert_alike(nodes, 3)


def test_what_was_looked_at_ahead_is_told_once(nodes: list[Node]) -> None:
    """Drift that comes after a settling is seen by the next one, of the same trainer."""
    settlings = [node.settling() for node in nodes]
    for node, settling in zip(nodes, settlings, strict=True):
        node.train(3)
        settling.look()
    assert settle(nodes, 1, settlings) == [Settled()] * 3
    with torch.no_grad():
        next(nodes[0].state.engine.job.model.parameters()).mul_(1 + 1e-9)
    assert [one.drifted for one in settle(nodes, 2, settlings)] == [(0,)] * 3
    assert_alike(nodes, 3)


def test_a_member_whose_state_is_not_finite_is_healed_by_one_behind_it(nodes: list[Node]) -> None:
    nodes[0].train(5)
    nodes[1].train(3)
    nodes[2].train(3)
    with torch.no_grad():
        next(nodes[0].state.engine.job.model.parameters()).fill_(float("inf"))
    assert [one.received for one in settle(nodes)] == [True, False, False]
    assert_alike(nodes, 3)


def test_nobody_sound_fails_on_every_rank(nodes: list[Node]) -> None:
    for node in nodes:
        with torch.no_grad():
            next(node.state.engine.job.model.parameters()).fill_(float("nan"))
    with pytest.raises(NobodySoundError):
        settle(nodes)


def test_machines_that_round_differently_are_told(nodes: list[Node]) -> None:
    assert all(one.rounds_alike for one in settle(nodes))
    nodes[2].rounding = "another"
    assert not any(one.rounds_alike for one in settle(nodes, counter=2))


def test_a_state_travels_in_parts(nodes: list[Node], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each must arrive within a collective's time, so none may be as large as the state."""
    parts: list[int] = []

    def move(world: World, tensor: torch.Tensor, source: int, target: int) -> Pending:
        if world.rank == source:
            parts.append(tensor.numel())
        return moved(world, tensor, source, target)

    moved = World.move
    monkeypatch.setattr(World, "move", move)
    monkeypatch.setattr(transfer, "PART_BYTES", 1000)
    nodes[1].train(3)
    found = settle(nodes)
    assert [one.received for one in found] == [True, False, True]
    assert_alike(nodes, 3)
    assert len([size for size in parts if size == 1000]) > 4
    assert max(parts) == 1000


def test_a_state_larger_than_this_run_can_have_is_refused_before_it_is_received(
    nodes: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes[0].train(2)
    monkeypatch.setattr(TrainingState, "payload_max_bytes", lambda _: 100)
    with pytest.raises(WorldError, match=r"offered .* bytes of state where at most 100 can be"):
        settle(nodes[:2])
    assert nodes[1].state.tick == 0
    monkeypatch.undo()
    monkeypatch.setattr(transfer, "HEADER_MAX_BYTES", 10)
    with pytest.raises(WorldError, match=r"offered .* bytes of state where at most 10 can be"):
        settle(nodes[:2], counter=2)
    monkeypatch.undo()
    settle(nodes[:2], counter=3)
    assert_alike(nodes[:2], 2)


def test_a_record_that_does_not_follow_is_refused_and_mended_by_the_next_world(
    nodes: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    donor, receiver = nodes[:2]
    donor.train(5)
    receiver.train(2)
    with monkeypatch.context() as spoilt:
        spoilt.setattr(
            donor.journal, "lines_after", lambda tick: Journal.lines_after(donor.journal, tick + 1)
        )
        with pytest.raises(WorldError, match="jump from step 2 to 4"):
            settle([donor, receiver])
    assert not receiver.state.healed
    assert (receiver.state.tick, receiver.journal.tick) == (2, 2)
    settle([donor, receiver], counter=2)
    assert receiver.state.healed
    assert_alike([donor, receiver], 5)


def test_one_long_line_may_be_passed_on(nodes: list[Node]) -> None:
    """A step with many ranks, or an evaluation with many metrics, is longer than the usual line."""
    donor, receiver = nodes[:2]
    for node in (donor, receiver):
        node.train(1)
    position = donor.state.engine.timeline.position(1)
    reduced = donor.state.engine.reduce_step(Alone(), position, (donor.state.engine.units(position),))
    donor.state.commit_step(reduced, generation())
    world = WorldInfo("1.1", 1, "n" * 10_000, reduced.shares)
    donor.journal.append(StepLine(2, 0, 1.0, position.samples, 0.01, world, 0.0))
    settle([donor, receiver])
    assert_alike([donor, receiver], 2)
