"""A fault lands where it was addressed: the run's own record shows it at that very step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rig.chain import Loopback, RigChain, rig_chain
from rig.jobs import Mode, Pace, write_job
from rig.node import RigNode
from rig.outcome import check_ended, train_alone
from rig.stops import Point
from support.progress import next_step_s, trains_together

pytestmark = [pytest.mark.integration, pytest.mark.rig, pytest.mark.timeout(240)]

AT = 40
HALT_S = 60.0
KILLED_S, FROZEN_S = 2.0, 5.0
"""Generous: what it takes on a quiet machine is measured by the bench."""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_alone(tmp_path_factory.mktemp("alone"), Mode.REPRODUCIBLE)


@pytest.fixture
def chain() -> Iterator[RigChain]:
    with rig_chain() as made:
        yield made


def begin(chain: RigChain, names: str = "ada bob cem", pace_s: float = 0.002) -> tuple[list[RigNode], Pace]:
    pace = Pace(chain.folder / "pace")
    pace.set(pace_s)
    for name in names.split():
        write_job(chain.prepare(name), pace, Mode.REPRODUCIBLE)
    flags = ("--min-nodes", str(len(names.split())))
    nodes = [chain.start(Loopback(name), *flags) for name in names.split()]
    for node in nodes:
        node.await_start()
    return nodes, pace


@pytest.mark.parametrize(
    ("point", "committed"),
    [
        (Point.COMPUTING, AT),
        (Point.EXCHANGING, AT),
        (Point.PREPARED, AT),
        (Point.RIDING, AT + 1),  # its rider is out: the others see theirs
    ],
)
def test_a_trainer_dies_at_the_very_point_and_the_next_world_begins_behind_it(
    chain: RigChain, alone: Path, point: Point, committed: int
) -> None:
    nodes, _ = begin(chain)
    victim = nodes[0]
    stop = chain.stop_at(victim, point, AT)
    seen = [chain.stop_at(node, Point.COMPUTING, committed) for node in nodes[1:] if committed > AT]
    where = stop.reached(HALT_S)
    assert (where.node, where.point, where.step) == (victim.name, point, AT)
    assert stop.held
    for other in seen:
        other.reached(HALT_S)
        other.release()
    at = victim.kill()
    others = nodes[1:]
    ended = check_ended(others, alone, Mode.REPRODUCIBLE)
    assert not stop.held
    assert ended.worlds[0] == (3, 1, committed)
    assert ended.sizes[-1] == 2
    assert next_step_s(others[0].journal("net"), at) < KILLED_S


def test_a_frozen_node_stands_where_it_was_stopped_and_comes_back(chain: RigChain, alone: Path) -> None:
    nodes, pace = begin(chain)
    victim = nodes[1]
    stop = chain.stop_at(victim, Point.EXCHANGING, AT)
    assert stop.reached(HALT_S).step == AT
    at = victim.freeze()
    stop.release()  # it cannot hear that: it is frozen there
    pace.set(0.05)
    others = [node for node in nodes if node is not victim]
    trains_together(others)
    victim.thaw()
    trains_together(nodes)
    pace.set(0.0)
    ended = check_ended(nodes, alone, Mode.REPRODUCIBLE)
    assert ended.worlds[0] == (3, 1, AT)
    assert ended.sizes == (3, 2, 3)
    assert next_step_s(others[0].journal("net"), at) < FROZEN_S


def test_a_commit_that_one_rank_did_not_see_is_applied_from_what_it_prepared(
    chain: RigChain, alone: Path
) -> None:
    nodes, pace = begin(chain)
    blind, witness = nodes[0], nodes[1]
    unseen = chain.stop_at(blind, Point.UNSEEN, AT)
    further = chain.stop_at(witness, Point.EXCHANGING, AT + 1)
    assert unseen.reached(HALT_S).step == AT
    assert further.reached(HALT_S).step == AT + 1, "the others committed what this one did not see"
    pace.set(0.01)
    further.release()
    unseen.release()
    trains_together(nodes)
    pace.set(0.0)
    ended = check_ended(nodes, alone, Mode.REPRODUCIBLE)
    assert ended.worlds[0] == (3, 1, AT + 1)
    assert ended.sizes == (3, 3)
    log = next((blind.state / "runs").glob("*/train.log")).read_text()
    assert "lost before its rider was seen" in log
    assert "state received" not in log, "it held the whole gradient: no state was passed"
