"""The benchmark's result from what its parts found, and its table. Pure but for printing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from bench import report
from bench.hetero.mixes import EVEN, MIXES, SOLO

BARS = {
    "efficiency": (0.90, "samples/s at 4:2:1 over the sum of the solo speeds"),
    "vs_even_split": (2.0, "samples/s at 4:2:1 over DDP's even split"),
    "after_halving": (0.85, "steps 11 to 40 after a speed was halved, over the solo speeds then"),
    "one_node_ratio_5ms": (0.97, "one node over a plain loop, steps of 5 ms"),
    "one_node_ratio_1ms": (0.90, "one node over a plain loop, steps of 1 ms"),
}
"""What is promised, at least, and what of."""

RSS_MAX_MB, CPU_MAX_PERCENT = 80.0, 1.0
LONG_STEP_MS = 100.0


@dataclass(frozen=True)
class Found:
    """What each part of the benchmark found, by its name."""

    mixes: Mapping[str, Any]
    one: Mapping[str, Any]
    growth: Mapping[str, Any]
    idle: Mapping[str, Any]
    loss: Mapping[str, Any]


def result(found: Found) -> dict[str, Any]:
    """Return the whole result, as it is written: the figures that are promised, and what they come from."""
    first = found.mixes[MIXES[0].name]
    return {
        "speeds": dict(found.mixes),
        "efficiency": first["efficiency"],
        "vs_even_split": first["vs_even_split"],
        "vs_hand_tuned": first["vs_hand_tuned"],
        "after_halving": first["after_halving"]["kept"],
        "one_node_ratio_5ms": found.one["5ms"]["ratio"],
        "one_node_ratio_1ms": found.one["1ms"]["ratio"],
        "agent_rss_mb": found.idle["agent_rss_mb"],
        "agent_cpu_percent": found.idle["agent_cpu_percent"],
        "growth": dict(found.growth),
        "one_node": dict(found.one),
        "to_held_out_loss": dict(found.loss),
        "machine": report.machine(),
        "date": date.today().isoformat(),
        "quick": report.quick(),
    }


def missed(told: Mapping[str, Any]) -> list[str]:
    """Return a line for each figure that is not as promised."""
    lines = [
        f"{what}: {told[key]:.3f}, promised >= {least:.2f}"
        for key, (least, what) in BARS.items()
        if told[key] < least
    ]
    step_ms = told["speeds"][MIXES[0].name]["step_ms"]
    if step_ms < LONG_STEP_MS:
        lines.append(
            f"steps at 4:2:1 take {step_ms:.0f} ms, not {LONG_STEP_MS:.0f}: this machine is too fast"
        )
    if told["agent_rss_mb"] > RSS_MAX_MB:
        lines.append(f"an idle agent takes {told['agent_rss_mb']} MB, promised <= {RSS_MAX_MB:.0f}")
    if told["agent_cpu_percent"] > CPU_MAX_PERCENT:
        lines.append(f"an idle agent takes {told['agent_cpu_percent']}% of a core, promised <= 1%")
    return lines


def print_table(told: Mapping[str, Any]) -> None:
    """Print what is promised beside what was found."""
    rows = [[what, f">= {least:.2f}", f"{told[key]:.3f}"] for key, (least, what) in BARS.items()]
    rows += [
        ["an idle agent's memory", f"<= {RSS_MAX_MB:.0f} MB", f"{told['agent_rss_mb']} MB"],
        ["an idle agent's part of a core", "<= 1%", f"{told['agent_cpu_percent']}%"],
    ]
    notes = [
        f"{name}: steps of {mix['step_ms']} ms; {mix['efficiency']} of {SOLO}s, {mix['vs_even_split']} x "
        f"{EVEN}, {mix['vs_hand_tuned']} x that split by hand"
        for name, mix in told["speeds"].items()
    ]
    report.show("Machines of unequal speed, and one alone", ["", "promised", "found"], rows, notes)
