"""The order of a competitor's trials, and what becomes of a chain that does not come together again."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from bench.faults import Fault, Trials
from bench.peers.system import System
from bench.peers.torchft_system import TorchFt
from bench.peers.torchrun_system import Torchrun
from bench.peers.trials import STARTS_MAX, PeerChain, PeerCounts
from rig.chain import Loopback
from rig.lan import Lan

COUNTS = PeerCounts(kills=2, silences=1, none_after_s=1.0)
PYTHON = Path("/bench/bin/python")


class Places:
    """The LAN, as far as a chain asks for places on it."""

    @staticmethod
    def place(name: str) -> Loopback:
        return Loopback(name)


class Scripted(PeerChain):
    """A chain whose starts and trials go as a test wishes; ``deadly`` is what it does not outlive."""

    def __init__(self, system: System, folder: Path, deadly: Fault | None = None, starts: int = 99) -> None:
        super().__init__(system, cast(Lan, Places()), ("ada", "bob", "cem"), folder, folder / "model.py")
        self.story: list[str] = []
        self._deadly = deadly
        self._starts = starts

    def start(self) -> None:
        self.story.append("start")
        if self._starts == 0:
            raise AssertionError("they do not train together")
        self._starts -= 1
        self._whole = True

    def _trial(self, fault: Fault, trials: Trials, none_after_s: float) -> bool:
        self.story.append(fault)
        self._whole = fault is not self._deadly
        return self._whole


def test_each_fault_is_tried_so_often_and_the_host_dies_last(tmp_path: Path) -> None:
    chain = Scripted(Torchrun(PYTHON, "1"), tmp_path)
    chain.trials(COUNTS)
    assert chain.story == [
        "start",
        *["sigkill_worker"] * 2,
        *["sigkill_trainer"] * 2,
        "link_cut",
        "sigstop",
        *["sigterm"] * 2,
        *["sigkill_coordinator"] * 2,
    ]


def test_where_the_trainer_is_all_that_runs_it_is_not_killed_twice(tmp_path: Path) -> None:
    chain = Scripted(TorchFt(PYTHON, "1"), tmp_path)
    chain.trials(COUNTS)
    assert Fault.SIGKILL_TRAINER not in chain.story


@pytest.mark.parametrize(("deadly", "starts"), [(Fault.LINK_CUT, 2), (Fault.SIGKILL_COORDINATOR, 1)])
def test_what_a_chain_does_not_outlive_is_tried_once_and_the_rest_anew(
    tmp_path: Path, deadly: Fault, starts: int
) -> None:
    chain = Scripted(Torchrun(PYTHON, "1"), tmp_path, deadly)
    chain.trials(COUNTS)
    assert chain.story.count(deadly) == 1
    assert chain.story.count("start") == starts
    assert chain.story.count("sigterm") == 2


def test_a_chain_that_never_comes_together_ends_its_trials(tmp_path: Path) -> None:
    chain = Scripted(Torchrun(PYTHON, "1"), tmp_path, starts=0)
    trials = chain.trials(COUNTS)
    assert chain.story == ["start"] * STARTS_MAX
    assert trials.stuck == STARTS_MAX
    assert trials.result() == {}
