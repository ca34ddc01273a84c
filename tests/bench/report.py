"""What every benchmark leaves: `build/bench/NAME.json`, a dated copy under docs/bench/, a table for people.

`QUICK=1` in the environment makes a benchmark a run of under four minutes with the same keys; a quick run
leaves no dated copy.
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from daisychain.host.storage import write_atomically
from daisychain.host.versions import torch_version

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "bench"
KEPT = ROOT / "docs" / "bench"


def quick() -> bool:
    """Whether this run is to be a short one."""
    return os.environ.get("QUICK", "") not in ("", "0")


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest of ``values`` (not empty) that at least ``percent`` % of them do not exceed."""
    if not values:
        raise ValueError("no values, no percentile")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the median and the 95th percentile of durations, as the results tell them."""
    return {"p50_s": round(percentile(values, 50), 3), "p95_s": round(percentile(values, 95), 3)}


def machine() -> dict[str, Any]:
    """Return what of this machine matters to a measurement, and nothing that names it."""
    return {
        "cores": psutil.cpu_count() or 0,
        "memory_gib": round(psutil.virtual_memory().total / (1 << 30), 1),
        "architecture": platform.machine(),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        "torch": torch_version(),
    }


def publish(name: str, result: Mapping[str, Any], *, keep: bool) -> Path:
    """Write ``result`` as build/bench/NAME.json and return that path; ``keep`` leaves a dated copy, too."""
    data = (json.dumps(result, indent=2) + "\n").encode()
    written = BUILD / f"{name}.json"
    copies = [KEPT / f"{date.today().isoformat()}-{name}.json"] if keep else []
    for path in (written, *copies):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data, 0o644)
    return written


def show(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()
) -> None:
    """Print a table whose first column names the rows, and ``notes`` under it."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console = Console(width=None if os.isatty(1) else 160, highlight=False, markup=False)
    console.print(table)
    for note in notes:
        console.print(note)


def seconds(value: float | None) -> str:
    """Return a duration for a table; None is one that never ended."""
    return "none" if value is None else f"{value:.2f} s"
