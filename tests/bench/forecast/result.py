"""How near the forecasts came, from what each cell of the grid found. Pure but for printing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from bench import report

WITHIN, PROMISED_PART = 0.10, 0.90
CELLS_MIN = 24


@dataclass(frozen=True)
class Cell:
    """A cell of the grid.

    Attributes:
        members: names of the nodes that trained, as the forecast had chosen them.
        predicted_s, measured_s: a step of them.
        alone_s: predicted step of the best node alone: what the speed-up is over.
    """

    speeds: str
    link: str
    model: str
    members: tuple[str, ...]
    predicted_s: float
    measured_s: float
    alone_s: float

    @property
    def error(self) -> float:
        """How much longer the step was predicted than it was, as a part of it."""
        return self.predicted_s / self.measured_s - 1.0

    @property
    def speed_up(self) -> float:
        """What was predicted over the best node alone."""
        return self.alone_s / self.predicted_s


@dataclass(frozen=True)
class Benched:
    """A node behind a slow link: what the others make without it, and with it, in samples/s.

    ``reason``: why it stood by, as its status told.
    """

    link_mbit: float
    reason: str
    without: float
    with_it: float


def result(cells: Sequence[Cell], benched: Benched) -> dict[str, Any]:
    """Return the whole result, as it is written; ``cells`` are not empty."""
    errors = [abs(cell.error) for cell in cells]
    worst = max(cells, key=lambda cell: abs(cell.error))
    return {
        "cells": [_told(cell) for cell in cells],
        "within_10_percent": round(sum(error <= WITHIN for error in errors) / len(cells), 3),
        "worst": _told(worst),
        "benched_right": bool(benched.reason) and benched.without > benched.with_it,
        "benched": asdict(benched),
        "machine": report.machine(),
        "date": date.today().isoformat(),
        "quick": report.quick(),
    }


def missed(told: Mapping[str, Any]) -> list[str]:
    """Return a line for each figure that is not as promised."""
    lines = []
    if told["within_10_percent"] < PROMISED_PART:
        lines.append(
            f"forecasts within 10%: {told['within_10_percent']:.0%} of {len(told['cells'])} cells, promised "
            f">= {PROMISED_PART:.0%}; the worst by {told['worst']['error']:+.0%}"
        )
    if len(told["cells"]) < CELLS_MIN and not told["quick"]:
        lines.append(f"{len(told['cells'])} cells, promised >= {CELLS_MIN}")
    if not told["benched_right"]:
        lines.append(f"benching the slow link was not right: {told['benched']}")
    return lines


def print_table(told: Mapping[str, Any]) -> None:
    """Print every cell."""
    report.show(
        f"Forecast and measured: {told['within_10_percent']:.0%} within 10%",
        ["speeds", "links", "model", "trained", "forecast", "measured", "error"],
        [row(cell) for cell in told["cells"]],
        [f"a node behind {told['benched']['link_mbit']:g} Mbit/s: {told['benched']}", *missed(told)],
    )


def row(cell: Mapping[str, Any]) -> list[str]:
    """Return a cell for a table."""
    return [
        cell["speeds"],
        cell["link"],
        cell["model"],
        ", ".join(cell["members"]),
        f"{1000 * cell['predicted_s']:.1f} ms",
        f"{1000 * cell['measured_s']:.1f} ms",
        f"{cell['error']:+.0%}",
    ]


def _told(cell: Cell) -> dict[str, Any]:
    numbers = {name: round(value, 5) for name, value in asdict(cell).items() if isinstance(value, float)}
    return {
        **asdict(cell),
        **numbers,
        "error": round(cell.error, 3),
        "speed_up": round(cell.speed_up, 3),
    }
