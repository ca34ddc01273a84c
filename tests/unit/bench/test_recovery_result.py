"""What `make bench-recovery` writes and prints, from trials as they may come out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.chain_audit import Losses
from bench.faults import Fault, Trials
from bench.peers.torchft_system import TorchFt
from bench.peers.torchrun_system import Torchrun
from bench.recovery import print_table, result
from bench.steps import Join


def ours() -> Trials:
    trials = Trials()
    for fault in Fault:
        for took_s in (0.1, 0.2, 0.3):
            trials.add(fault, took_s)
    trials.joins.append(Join(took_s=0.25, pause_s=0.1, start_to_first_step_s=5.0))
    trials.took([0.02, 0.03, 0.025])
    return trials


def theirs() -> Trials:
    trials = Trials()
    trials.add(Fault.SIGKILL_WORKER, 1.1)
    trials.add(Fault.SIGKILL_COORDINATOR, None)
    return trials


@pytest.fixture
def told() -> dict[str, Any]:
    python = Path("/bench/bin/python")
    systems = {system.name: (system, theirs()) for system in (TorchFt(python, "1"), Torchrun(python, "2"))}
    written: dict[str, Any] = json.loads(json.dumps(result(ours(), Losses(0, 0, 0), 3, systems)))
    return written


def test_the_result_has_the_figures_of_every_fault(told: dict[str, Any]) -> None:
    assert told["trials"] == 3
    assert set(told["faults"]) == {
        *(
            "sigkill_worker",
            "sigkill_coordinator",
            "sigkill_trainer",
            "link_cut",
            "sigstop",
            "sigterm",
            "join",
        )
    }
    assert told["faults"]["sigstop"] == {"p50_s": 0.2, "p95_s": 0.3, "trials": 3}
    assert told["faults"]["join"] == {
        "p50_s": 0.25,
        "p95_s": 0.25,
        "pause_p95_s": 0.1,
        "start_to_first_step_p95_s": 5.0,
        "trials": 1,
    }
    assert [told[key] for key in ("steps_lost", "samples_lost", "samples_repeated")] == [0, 0, 0]


def test_the_competitors_stand_beside_with_their_settings(told: dict[str, Any]) -> None:
    assert set(told["peers"]) == {"torchft", "torchrun"}
    for peer in told["peers"].values():
        assert peer["faults"]["sigkill_worker"] == {"p50_s": 1.1, "p95_s": 1.1, "trials": 1}
        assert peer["faults"]["sigkill_coordinator"] == {"p50_s": None, "p95_s": None, "trials": 1}
        assert "defaults" in peer["settings"]


def test_the_table_says_none_where_nobody_went_on(
    told: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    print_table(told)
    printed = capsys.readouterr().out
    row = next(line for line in printed.splitlines() if "sigkill_coordinator" in line)
    assert "0.20 s" in row
    assert row.count("none") == 4
    assert "<= 0.5 s" in row
    assert "lost: 0 steps" in printed


def test_a_run_without_competitors_and_without_joins_is_told_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    trials = ours()
    trials.joins.clear()
    print_table(result(trials, Losses(1, 2, 3), 3, {}))
    assert "lost: 1 steps, 2 samples; repeated: 3 samples" in capsys.readouterr().out
