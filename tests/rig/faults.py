"""Every fault of the matrix as it is done to a scene, and how it is mended afterwards."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from daisychain.core.jobs import JobState
from rig.garbage import Garbage, listening
from rig.jobs import JOB, Trouble, make_trouble
from rig.matrix import Fate, Fault
from rig.scene import AT, Scene
from support.progress import trains_together
from support.waiting import until

SPARE_BYTES = 64 << 20
"""What a starved trainer may still take: enough to go on, too little for what the job then asks for."""

QUOTA_CPUS = 0.25
SETTLED_S = 20.0

SILENT_STEPS = 25
"""Steps at the slow pace: some five seconds."""

RESTORED = "goes on from a checkpoint of step"


@dataclass(frozen=True, slots=True)
class Deed:
    """How a fault is done.

    Attributes:
        do: does it; returns Unix seconds just before.
        mend: undoes it, once the others went on.
        apart: both sides train on, each without the other.
        at_once: whether the step at which the victim stands is the last one that its world commits.
        in_reach: the coordinator still reaches everybody and has all parts of the step under way: it ends it,
            and hands it to the rest with its state.
    """

    do: Callable[[Scene], float]
    mend: Callable[[Scene], None] = lambda _: None
    at_once: bool = True
    apart: bool = False
    in_reach: bool = False


def _thaw(scene: Scene) -> None:
    scene.victim.thaw()


def _thaw_agent(scene: Scene) -> None:
    """Wake the agent; where its trainer trains on meanwhile, after a silence that would be a death."""
    if scene.row.expected.fate is Fate.STAYS:
        wanted = AT + SILENT_STEPS
        until(lambda: scene.others[0].step() >= wanted, SETTLED_S, f"step {wanted} is not committed")
    scene.victim.thaw()


def _kill_with_workers(scene: Scene) -> float:
    workers = psutil.Process(scene.victim.trainer()).children()
    assert workers, "the job has forked no process"
    return scene.victim.kill_trainer()


def _cut(scene: Scene) -> float:
    at = time.time()
    scene.net.cut(scene.victim.name)
    return at


def _cut_one_way(scene: Scene) -> float:
    at = time.time()
    for other in scene.others:
        scene.net.cut_one_way(scene.victim.name, other.name)
    return at


def _cut_pair(scene: Scene) -> float:
    at = time.time()
    worker = next(node for node in scene.others if not node.leads())
    scene.net.cut_pair(scene.victim.name, worker.name)
    return at


def _part(scene: Scene) -> float:
    at = time.time()
    scene.net.partition([node.name for node in scene.half()])
    return at


def _join_halves(scene: Scene) -> None:
    """Heal once both halves have gone further."""
    halves = (scene.half(), [node for node in scene.nodes if node not in scene.half()])
    for half in halves:
        trains_together(half)
    terms = {status.view.term for node in scene.nodes if (status := node.status()) is not None}
    assert len(terms) == 2, f"two halves in {len(terms)} terms: {terms}"
    if scene.apart:
        assert len({term.number for term in terms}) == 1, f"terms of different numbers: {terms}"
    scene.net.mend()


def _starve(scene: Scene) -> float:
    at = scene.victim.starve(SPARE_BYTES)
    make_trouble(scene.victim.folder, Trouble.HUNGRY)
    return at


def _trouble(scene: Scene, trouble: Trouble, *, everywhere: bool = False) -> float:
    at = time.time()
    for node in scene.nodes if everywhere else [scene.victim]:
        make_trouble(node.folder, trouble)
    return at


def _fill_disk(scene: Scene) -> float:
    at = time.time()
    with contextlib.suppress(OSError), _filler(scene).open("wb") as file:
        while True:
            file.write(bytes(1 << 16))
            file.flush()
    return at


def _filler(scene: Scene) -> Path:
    return scene.victim.state / "filler"


def _make_room(scene: Scene) -> None:
    _filler(scene).unlink()


def _kill_all(scene: Scene) -> float:
    at = time.time()
    for node in scene.nodes:
        node.kill()
    return at


def _start_all(scene: Scene) -> None:
    """Start every node again; the run goes on from what the disks hold."""
    for node in scene.nodes:
        node.start()
    for node in scene.nodes:
        node.await_start()
    until(
        lambda: any(RESTORED in node.trainer_log() for node in scene.nodes),
        SETTLED_S,
        "no checkpoint is used",
    )


def _fall_behind(scene: Scene) -> float:
    """Take the victim away; the others drop the run for a new one of the same job, and it comes back."""
    at = scene.victim.kill()
    scene.release()
    other = scene.others[0]
    before = other.client.cancel(JOB).run_id
    for node in scene.others:
        until(lambda node=node: node.state_of(JOB) is JobState.CANCELLED, SETTLED_S, "it goes on")  # type: ignore[misc]
    assert other.client.submit(JOB).card.run_id != before
    trains_together(scene.others)
    assert scene.others[0].step() < AT, "the new run is further than the old one was"
    scene.victim.start()
    return at


def _send_garbage(scene: Scene) -> float:
    """Have all but the victim open their ports for gloo, and be talked to before the world can form."""
    at = time.time()
    agents = {(node.name, port) for node in scene.nodes for _, port in listening(node)}
    garbage = scene.garbage = Garbage(scene.nodes)
    for stop in scene.stops:
        if stop.node != scene.victim.name:
            stop.release()
    until(lambda: len(garbage.hit - agents) >= len(scene.others), 1.4, "no port of gloo was found")
    assert agents <= garbage.hit, "not every agent was talked to"
    return at


def _end_garbage(scene: Scene) -> None:
    scene.end_garbage()


def _cancel(scene: Scene) -> float:
    at = time.time()
    scene.victim.client.cancel(JOB)
    return at


def _slow_down(scene: Scene) -> float:
    at = time.time()
    scene.groups[scene.victim.name].allow(QUOTA_CPUS)
    return at


DEEDS: dict[Fault, Deed] = {
    Fault.AGENT_KILLED: Deed(lambda scene: scene.victim.kill_agent()),
    Fault.TRAINER_KILLED: Deed(lambda scene: scene.victim.kill_trainer()),
    Fault.WORKERS_LEFT: Deed(_kill_with_workers),
    Fault.NODE_KILLED: Deed(lambda scene: scene.victim.kill()),
    Fault.NODE_FROZEN: Deed(lambda scene: scene.victim.freeze(), _thaw),
    Fault.AGENT_FROZEN: Deed(lambda scene: scene.victim.freeze(trainer=False), _thaw_agent, at_once=False),
    Fault.TRAINER_FROZEN: Deed(lambda scene: scene.victim.freeze(agent=False), _thaw),
    Fault.LINK_CUT: Deed(_cut, lambda scene: scene.net.mend(), apart=True),
    Fault.ONE_WAY_CUT: Deed(_cut_one_way, lambda scene: scene.net.mend(), apart=True),
    Fault.NO_ROUTE: Deed(_cut_pair, lambda scene: scene.net.mend(), apart=True, in_reach=True),
    Fault.HALVES: Deed(_part, _join_halves, apart=True),
    Fault.OUT_OF_MEMORY: Deed(_starve),
    Fault.RAISES: Deed(lambda scene: _trouble(scene, Trouble.RAISE)),
    Fault.NOT_A_NUMBER: Deed(lambda scene: _trouble(scene, Trouble.NAN)),
    Fault.FAILS_TWICE: Deed(lambda scene: _trouble(scene, Trouble.RAISE, everywhere=True)),
    Fault.DISK_FULL: Deed(_fill_disk, _make_room, at_once=False),
    Fault.LEAVES: Deed(lambda scene: scene.victim.terminate()),
    Fault.ALL_KILLED: Deed(_kill_all, _start_all, at_once=False),
    Fault.OLD_DISK: Deed(_fall_behind, at_once=False),
    Fault.GARBAGE: Deed(_send_garbage, _end_garbage, at_once=False),
    Fault.CANCELLED: Deed(_cancel, at_once=False),
    Fault.QUOTA_CHANGED: Deed(_slow_down, at_once=False),
    Fault.CLOCK_OFFSET: Deed(lambda _: time.time(), at_once=False),
}
