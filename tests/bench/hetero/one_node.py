"""What one machine alone pays: agent and trainer against the loop that a person would write."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.hetero import models
from bench.hetero.journals import JournalTail
from bench.hetero.marks import Mark, ratio
from bench.hetero.mixes import CHAIN, SOLO
from bench.hetero.plain import TRAIN, PlainLoop, PlainTraining
from bench.hetero.turns import Pace, rounds
from bench.peers.processes import ROOT
from rig.chain import Loopback
from support.agents import Chain, chain
from support.waiting import until

LOADED_S, FIND_S = 60.0, 60.0
MOST_SAMPLES = 1 << 13


@dataclass(frozen=True)
class Model:
    """A job whose batch is found so that a step of the plain loop takes ``step_s`` on this machine."""

    name: str
    step_s: float
    code: Callable[[int], str]


MODELS = (
    Model("5ms", 0.005, lambda samples: models.perceptron(samples, 64, 256)),
    Model("1ms", 0.001, lambda samples: models.perceptron(samples, 64, 128)),
    Model("granules_5ms", 0.005, models.granules),
)


class NodeTraining:
    """A node alone: the product as it is installed, on loopback; it stands still but for its turns."""

    name = CHAIN

    def __init__(self, agents: Chain, code: str, batch: int) -> None:
        models.write_job(agents.prepare("solo"), code, batch)
        self._node = agents.start("solo", wait=False)
        self._tail = JournalTail(self._node.state)

    def start(self) -> None:
        """Wait until it trains; it stands still then."""
        self._node.await_start()
        until(lambda: bool(self._tail.marks()), LOADED_S, "the node does not train")
        self.pause()

    def resume(self) -> None:
        """Have it go on."""
        self._node.signal_all(signal.SIGCONT)

    def pause(self) -> None:
        """Have agent and trainer stand still."""
        self._node.signal_all(signal.SIGSTOP)

    def marks(self) -> list[list[Mark]]:
        """Return the marks of its run."""
        return [self._tail.marks()]


def compare(model: Model, count: int, pace: Pace) -> dict[str, Any]:
    """Return the speeds of the node and of the plain loop over so many rounds, and their ratio."""
    with loaded(model) as (plain, ours, batch):
        speeds = rounds([plain, ours], count, pace)
    plain_step_s = batch / sorted(speeds[SOLO])[count // 2]
    return {
        "ratio": ratio(speeds[CHAIN], speeds[SOLO]),
        "ratios": [round(a / b, 3) for a, b in zip(speeds[CHAIN], speeds[SOLO], strict=True)],
        "batch": batch,
        "plain_step_ms": round(1000 * plain_step_s, 3),
        "more_ms_a_step": round(1000 * plain_step_s * (1 / ratio(speeds[CHAIN], speeds[SOLO]) - 1), 3),
    }


@contextlib.contextmanager
def loaded(model: Model) -> Iterator[tuple[PlainTraining, NodeTraining, int]]:
    """Both, loaded and standing still, and the batch."""
    with tempfile.TemporaryDirectory(prefix="one-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        batch = found_batch(folder, model)
        code = model.code(samples_of(batch))
        job = models.write_job(folder / "plain-jobs", code, batch)
        plain = PlainTraining(PlainLoop(batch), [Loopback("plain")], folder / "plain", job, batch)
        stack.callback(plain.close)
        plain.start()
        (folder / "chain").mkdir()
        ours = NodeTraining(stack.enter_context(chain(folder / "chain")), code, batch)
        ours.start()
        yield plain, ours, batch


def samples_of(batch: int) -> int:
    """Return the samples of a data set in which every batch is whole."""
    return max(4, MOST_SAMPLES // 4 // batch) * batch


def found_batch(folder: Path, model: Model) -> int:
    """Return the batch with which a step of the plain loop takes ``model.step_s`` here."""
    job = models.write_job(folder / "trial-jobs", model.code(MOST_SAMPLES), 1)
    command = [sys.executable, str(TRAIN), "--job", str(job), "--find-batch", str(model.step_s)]
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    told = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=FIND_S
    )
    return int(told.stdout)
