"""The faults of the recovery benchmark, and the trials made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bench.report import percentile, spread
from bench.steps import Join

JOIN = "join"


class Fault(StrEnum):
    """What is done to one node of a chain of three."""

    SIGKILL_WORKER = "sigkill_worker"  # every process of a node that coordinates nothing
    SIGKILL_COORDINATOR = "sigkill_coordinator"  # every process of the one that does
    SIGKILL_TRAINER = "sigkill_trainer"  # the training process alone
    LINK_CUT = "link_cut"  # no packet passes, and no reset tells of it
    SIGSTOP = "sigstop"  # every process frozen
    SIGTERM = "sigterm"  # an orderly leave


PROMISED_P95_S: dict[str, float] = {
    Fault.SIGKILL_WORKER: 0.5,
    Fault.SIGKILL_COORDINATOR: 0.5,
    Fault.SIGKILL_TRAINER: 0.5,
    Fault.LINK_CUT: 2.5,
    Fault.SIGSTOP: 2.5,
    Fault.SIGTERM: 0.2,
    JOIN: 0.5,
}
PROMISED_PAUSE_P95_S = 0.2

SILENT = frozenset({Fault.LINK_CUT, Fault.SIGSTOP})


@dataclass
class Trials:
    """What the trials of one system gave.

    Attributes:
        recoveries: for each fault, the seconds of each trial to the next committed step; None where there
            was none within the bound.
        joins: of every node that was started again.
        step_s: some steps between the faults.
        stuck: how often the node did not come back to the others, or the chain did not come together.
    """

    recoveries: dict[Fault, list[float | None]] = field(default_factory=dict)
    joins: list[Join] = field(default_factory=list)
    step_s: list[float] = field(default_factory=list)
    stuck: int = 0

    def add(self, fault: Fault, took_s: float | None) -> None:
        """Take in one trial."""
        self.recoveries.setdefault(fault, []).append(took_s)

    def took(self, step_s: Sequence[float]) -> None:
        """Take in how long some steps between two faults took."""
        self.step_s += step_s

    def step_ms(self) -> float | None:
        """Return the median time of a step."""
        return round(1000 * percentile(self.step_s, 50), 1) if self.step_s else None

    def result(self) -> dict[str, dict[str, Any]]:
        """Return the figures by fault, as the results tell them; null where a trial never recovered."""
        told: dict[str, dict[str, Any]] = {}
        for fault, trials in self.recoveries.items():
            ended = [took_s for took_s in trials if took_s is not None]
            whole = len(ended) == len(trials)
            told[fault] = {"p50_s": None, "p95_s": None}
            if whole:
                told[fault].update(spread(ended))
            told[fault]["trials"] = len(trials)
        if self.joins:
            told[JOIN] = dict(spread([join.took_s for join in self.joins])) | {
                "pause_p95_s": round(percentile([join.pause_s for join in self.joins], 95), 3),
                "start_to_first_step_p95_s": round(
                    percentile([join.start_to_first_step_s for join in self.joins], 95), 3
                ),
                "trials": len(self.joins),
            }
        return told
