"""Runs one row of the matrix: `python -m rig.row NAME --alone FOLDER`."""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import assert_never

from daisychain.core.jobs import JobState
from rig.faults import DEEDS
from rig.jobs import JOB, Mode
from rig.matrix import Fate, Fault, Phase, Row, rows
from rig.node import RigNode
from rig.outcome import Ended, check_ended, check_models, finished, model_of, scratch_left, sockets_left
from rig.requirements import RigUnavailable
from rig.scene import SLOW_S, TEN_YEARS_S, Scene, point_of, set_scene
from support.agent_node import LEAVE_S
from support.progress import next_step_s, trains_together
from support.waiting import until

BACK_S = 60.0
SAID_S = 15.0
ENDED_S = 10.0

AT_LEAST = (Phase.TRANSFER, Phase.FORMING, Phase.REFORMING, Phase.CHECKPOINT)
"""Phases that come at no step known beforehand."""

EXIT_FAILED, EXIT_UNAVAILABLE = 1, 3


@dataclass(frozen=True, slots=True)
class Seen:
    """Where a row's fault landed, and the seconds to the next committed step (None = nobody waited)."""

    landed: str
    next_step_s: float | None


def run_row(row: Row, alone: Path) -> Seen:
    """Run a row; `AssertionError` says what was not as expected. ``alone``: the model of one process."""
    with ExitStack() as stack:
        scene = set_scene(stack, row)
        scene.arrive()
        check_landing(scene)
        deed = DEEDS[row.fault]
        if row.expected.fate is Fate.REJOINS or row.expected.says or row.fault is Fault.AGENT_FROZEN:
            scene.pace.set(SLOW_S[row.mode])
        at = deed.do(scene)
        scene.release()
        seen: float | None = None
        if row.expected.job is JobState.FINISHED:
            see_through(scene)
            scene.pace.set(0.0)
            ended = check_ended(members(scene), alone, row.mode, apart=deed.apart)
            seen = check_record(scene, ended, at)
            check_fate_at_end(scene, alone)
        else:
            check_without_result(scene)
        stop_all(scene)
    landed = "from the start" if scene.where is None else f"{scene.where.point} at step {scene.where.step}"
    return Seen(f"{scene.victim.name}, {landed}", seen)


def check_landing(scene: Scene) -> None:
    """Assert that the victim's trainer stands at this moment where the row wants it to be hit."""
    if scene.where is None:
        return
    point, step = point_of(scene.row)
    assert scene.where.point is point, scene.where
    exact = scene.row.phase not in AT_LEAST
    assert scene.where.step == step if exact else scene.where.step >= step, scene.where
    held = [stop for stop in scene.stops if stop.node == scene.victim.name and stop.held]
    assert held, f"{scene.victim.name} stands no longer at {point}"


def see_through(scene: Scene) -> None:
    """See the others go on, the fault mended, and the victim come to what is expected of it."""
    row, deed = scene.row, DEEDS[scene.row.fault]
    match row.expected.fate:
        case Fate.GONE:
            pass  # whoever is left goes on: the end shows it
        case Fate.STAYS:
            await_words(scene)
            deed.mend(scene)
        case Fate.LATE:
            for node in scene.others:
                until(partial(finished, node), BACK_S, f"{node.name} does not finish the run")
            deed.mend(scene)
        case Fate.STANDS_BY:
            await_words(scene)
            trains_together(scene.others)
        case Fate.REJOINS:
            if row.expected.within_s and row.fault is not Fault.HALVES:
                trains_together(scene.others)
            await_words(scene)
            deed.mend(scene)
            trains_together(members(scene), BACK_S)
        case _:
            assert_never(row.expected.fate)


def members(scene: Scene) -> list[RigNode]:
    """Return who is in the last world."""
    comes_back = scene.row.expected.fate in (Fate.REJOINS, Fate.STAYS)
    return [*scene.others, scene.victim] if comes_back else list(scene.others)


def await_words(scene: Scene) -> None:
    """Wait until some node says what the row expects to be said."""
    words = scene.row.expected.says
    if words:
        running = [node for node in scene.nodes if node.running]
        until(lambda: any(says(node, words) for node in running), SAID_S, f"nobody says {words!r}")


def says(node: RigNode, words: str) -> bool:
    """Whether a node tells, of itself or of a peer, a reason with these words."""
    status = node.status()
    if status is None:
        return False
    told = [status.view.standby, status.view.trainer.trouble]
    told += [text for peer in status.view.peers for text in (peer.standby, peer.trainer.trouble)]
    told += [card.reason for card in status.view.jobs]
    return any(words in text for text in told)


def check_record(scene: Scene, ended: Ended, at: float) -> float | None:
    """Assert where the broken world ended, and how soon the next one went on; return the latter's seconds."""
    row, deed = scene.row, DEEDS[scene.row.fault]
    in_step = row.phase not in (Phase.EARLY, Phase.TRANSFER, Phase.FORMING, Phase.REFORMING)
    if row.expected.fate is Fate.STAYS and row.phase is not Phase.FORMING:
        assert len(ended.worlds) == 1, f"a world broke: {ended.worlds}"
    elif deed.at_once and in_step and scene.where is not None:
        last = scene.where.step + deed.in_reach
        assert ended.worlds[0][2] == last, f"hit at {scene.where}, worlds {ended.worlds}"
    if not row.expected.within_s or row.phase in (Phase.EARLY, Phase.FORMING, Phase.REFORMING):
        return None  # no world had committed a step before, or another fault came before
    took_s = next_step_s(scene.others[0].journal(JOB), at)
    assert took_s <= row.expected.within_s, f"{took_s:.2f} s to the next committed step"
    return took_s


def check_without_result(scene: Scene) -> None:
    """Assert that the run ends without a result everywhere, as expected, and nothing of it goes on."""
    wanted = scene.row.expected.job
    await_words(scene)
    for node in scene.nodes:
        until(
            lambda node=node: node.state_of(JOB) is wanted,  # type: ignore[misc]
            ENDED_S,
            f"{node.name} does not hold the run {wanted.value}",
        )
        until(lambda node=node: not node.has_trainer(), ENDED_S, f"{node.name}'s trainer lives on")  # type: ignore[misc]
        assert not (node.jobs / JOB / "result").exists(), f"{node.name} wrote a result"


def check_fate_at_end(scene: Scene, alone: Path) -> None:
    """Assert what has become of the victim when the run is over."""
    victim, row = scene.victim, scene.row
    match row.expected.fate:
        case Fate.GONE:
            code = victim.process.wait(LEAVE_S)
            assert (code == 0) == (row.fault is Fault.LEAVES), f"{victim.name} ended with {code}"
        case Fate.LATE | Fate.STANDS_BY:
            until(partial(finished, victim), BACK_S, f"{victim.name} does not learn that the run is over")
            if model_of(victim).exists():
                apart = DEEDS[row.fault].apart
                check_models([*scene.others, victim], alone, row.mode, apart=apart)
        case Fate.STAYS | Fate.REJOINS:
            pass  # a member: seen with the others
        case _:
            assert_never(row.expected.fate)
    if row.fault is Fault.CLOCK_OFFSET:
        lag_s = time.time() - victim.journal(JOB)[-1]["at"]
        assert lag_s > 0.9 * TEN_YEARS_S, f"the clock of {victim.name} is {lag_s} s slow"


def stop_all(scene: Scene) -> None:
    """Have every node leave; assert that an orderly one leaves no socket and nobody a temporary file."""
    scene.net.mend()
    scene.chain.close()
    for node in scene.nodes:
        assert not scratch_left(node), f"temporary files: {scratch_left(node)}"
        if node.process.returncode == 0:
            assert not sockets_left(node), f"sockets: {sockets_left(node)}"


def main() -> int:
    """Run one row and print what it showed; returns the exit code."""
    parser = argparse.ArgumentParser(description="Run one row of the fault matrix.")
    parser.add_argument("name", choices=[row.name for row in rows()], metavar="NAME")
    parser.add_argument("--alone", type=Path, required=True, help="folder made by `python -m rig.outcome`")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_FAILED))  # takes the chain down
    row = next(row for row in rows() if row.name == options.name)
    try:
        seen = run_row(row, alone_in(options.alone, row.mode))
    except RigUnavailable as why:
        print(why)
        return EXIT_UNAVAILABLE
    except Exception:
        traceback.print_exc(file=sys.stdout)
        return EXIT_FAILED
    went_on = "" if seen.next_step_s is None else f", next step after {seen.next_step_s:.2f} s"
    print(f"{seen.landed}{went_on}")
    return 0


def alone_in(folder: Path, mode: Mode) -> Path:
    return folder / mode / "jobs" / JOB / "result" / "model.safetensors"


if __name__ == "__main__":
    sys.exit(main())
