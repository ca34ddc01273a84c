"""What a run on the rig must come to: nothing lost or repeated, one state, the same as in one process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from daisychain.core.jobs import JobState
from rig.chain import environment_of_rig
from rig.jobs import JOB, STEPS, Mode, Pace, write_job
from rig.node import RigNode
from support.waiting import until

END_S = 60.0
ALONE_S = 120.0
TOLERANCE = 1e-9
"""Relative, of a float64 run on any chain against one process."""

Tensors = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that finished on some nodes, all of which hold one model.

    Attributes:
        worlds: (size, first step, last step) of each world that committed a step, in order.
        coordinator_changes: see `Audit`.
    """

    worlds: tuple[tuple[int, int, int], ...]
    coordinator_changes: int

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(size for size, _, _ in self.worlds)


def train_alone(folder: Path, mode: Mode) -> Path:
    """Train the rig's job with `daisychain run` in ``folder``; return its model's file."""
    jobs = folder / "jobs"
    job = write_job(jobs, Pace(folder / "pace"), mode)
    state = folder / "alone" / "state"
    command = [sys.executable, "-m", "daisychain.cli", "run", str(job), "--state-folder", str(state)]
    command += ["--threads", "1"]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=ALONE_S, env=environment_of_rig(), check=False
    )
    assert ended.returncode == 0, ended.stderr
    return job / "result" / "model.safetensors"


def check_ended(nodes: Sequence[RigNode], alone: Path, mode: Mode, *, apart: bool = False) -> Ended:
    """Wait until ``nodes`` finished the run, and assert all that is promised of it.

    ``apart``: some of them trained without the others, in another split of the sums. In default mode what
    they then hold is equal up to rounding, and nobody's state is passed for that.
    """
    for node in nodes:
        until(partial(finished, node), END_S, f"{node.name} does not finish the run")
    for node in nodes:
        summary = node.summary(JOB)
        audit = summary["audit"]
        found = (audit["samples_lost"], audit["samples_repeated"], summary["steps"])
        assert found == (0, 0, STEPS), f"{node.name}: lost, repeated, steps: {found}"
        steps = [line["step"] for line in node.journal(JOB) if "samples" in line]
        assert steps == list(range(1, STEPS + 1)), f"{node.name}'s record: {steps}"
        assert summary["repairs"] == 0, f"{node.name} saw drift repaired"
    check_models(nodes, alone, mode, apart=apart)
    worlds = tuple((w["size"], w["first_step"], w["last_step"]) for w in audit["worlds"])
    return Ended(worlds, audit["coordinator_changes"])


def check_models(nodes: Sequence[RigNode], alone: Path, mode: Mode, *, apart: bool) -> None:
    """Assert that ``nodes`` published one model, and that one process makes the same."""
    models = {model_of(node).read_bytes() for node in nodes}
    rounded = apart and mode is Mode.DEFAULT
    assert len(models) == 1 or rounded, f"{[node.name for node in nodes]} hold {len(models)} different models"
    for node in nodes:
        assert_like(load_file(model_of(node)), load_file(alone), mode)


def assert_like(found: Tensors, wanted: Tensors, mode: Mode) -> None:
    """Assert that a model is the one that one process makes: to the bit, or to rounding."""
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        if mode is Mode.REPRODUCIBLE:
            same = found[name].tobytes() == tensor.tobytes()
            assert same, f"{name} differs from one process by up to {np.abs(found[name] - tensor).max()}"
        else:
            scale = max(1.0, float(np.abs(tensor).max()))
            off = float(np.abs(found[name] - tensor).max()) / scale
            assert off <= TOLERANCE, f"{name} differs from one process by {off:.2e}"


def finished(node: RigNode) -> bool:
    return node.state_of(JOB) is JobState.FINISHED


def scratch_left(node: RigNode) -> list[str]:
    """Return the temporary files of an ended node, by the names that the product gives them."""
    names = [path for root in (node.state, node.jobs) for path in root.rglob("*")]
    made = (".result-new-", ".result-old-", ".summary.json-")
    return [str(path) for path in names if path.name.startswith(made) or path.name.endswith((".new", ".tmp"))]


def sockets_left(node: RigNode) -> list[str]:
    """Return the sockets in the file system that an ended node left; a killed one may leave its agent's."""
    return [str(path) for path in node.state.rglob("*") if path.is_socket()]


def model_of(node: RigNode) -> Path:
    """Return the file of the model that the node published."""
    return node.jobs / JOB / "result" / "model.safetensors"


def main() -> None:
    """``python -m rig.outcome FOLDER``: train the references of both modes into FOLDER."""
    folder = Path(sys.argv[1])
    for mode in Mode:
        print(os.fspath(train_alone(folder / mode, mode)))


if __name__ == "__main__":
    main()
