"""docs/BENCHMARKS.md, made of what the benchmarks wrote: `python -m bench.page`.

A quick run's figures are worth little, so its page stays under build/bench/.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import report
from bench.forecast import result as forecasts
from bench.hetero.mixes import CHAIN, EVEN, HAND, SOLO
from bench.hetero.result import BARS, CPU_MAX_PERCENT, RSS_MAX_MB, missed
from daisychain.host.storage import write_atomically

PAGE = report.ROOT / "docs" / "BENCHMARKS.md"

HOW = (
    "Every node is a network namespace and a CPU quota on this one machine (real agents, TLS, gloo; links as "
    "fast as the machine), and the quotas sum to less than its cores. What is compared is loaded at the same "
    "time, trains the same file under the same quotas with one thread each, and takes turns while the others "
    "stand still; told is the median over the rounds of each round's ratio. A plain loop is what a person "
    "would write ([plain_train.py](../tests/bench/hetero/plain_train.py)); DDP is the same under torchrun, "
    "over gloo. Recovery and storms are told in [RELIABILITY.md](RELIABILITY.md)."
)

TO_LOSS = (
    "Three machines of 4:2:1 against the fastest of them alone. Both train the same steps, so a job whose "
    "steps are short gains nothing: its gradients take longer to travel than its samples to compute."
)

FORECAST = (
    "The time of a step, by what the nodes measured of themselves and of their links, was written to a file "
    "before the first step that they took together; then some steps were measured."
)

BY_PARAMETERS = (
    "Four equal nodes, fully connected models: the more parameters, the more every step passes around; the "
    "fewer, the shorter are its steps. Efficiency is over the sum of the solo speeds."
)

NO_GPU = """## Not run on a GPU

Every figure here is of CPUs."""


def main() -> int:
    """Write the page from build/bench/*.json; return 1 when a promise was missed, 2 without figures."""
    hetero, forecast = (_read(report.BUILD / f"{name}.json") for name in ("hetero", "forecast"))
    if hetero is None:
        sys.stderr.write("build/bench/hetero.json is missing: `make bench-hetero` makes it\n")
        return 2
    path = report.BUILD / PAGE.name if hetero["quick"] else PAGE
    write_atomically(path, page(hetero, forecast).encode(), 0o644)
    print(f"{path.relative_to(report.ROOT)} was made from build/bench/")
    lines = missed(hetero) + ([] if forecast is None else forecasts.missed(forecast))
    for line in lines:
        print(f"MISSED {line}")
    return 1 if lines else 0


def page(hetero: Mapping[str, Any], forecast: Mapping[str, Any] | None) -> str:
    """Return the whole page; ``forecast``: None where it was not measured."""
    parts = [
        "# Benchmarks",
        f"Made by `make bench` on {hetero['date']}; edit the programs under `tests/bench/`, not this page. "
        f"Measured on {machine(hetero['machine'])}.",
        HOW,
        "## What is promised and what was found",
        promised(hetero),
        "## Machines of unequal speed",
        *(part for name, mix in hetero["speeds"].items() for part in of_mix(name, mix)),
        "## One machine alone",
        one_node(hetero["one_node"]),
        "## Growth",
        *growth(hetero["growth"]),
        "## Time to a held-out loss",
        TO_LOSS,
        to_loss(hetero["to_held_out_loss"]),
        *([] if forecast is None else of_forecast(forecast)),
        NO_GPU,
    ]
    return "\n\n".join(parts) + "\n"


def machine(told: Mapping[str, Any]) -> str:
    """Return the machine in words that do not name it."""
    return (
        f"{told['cores']} cores ({told['architecture']}), {told['memory_gib']} GiB, {told['system']}, "
        f"Python {told['python']}, torch {told['torch']}"
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table whose first column names the rows."""
    lines = [columns, ["---"] + ["---:"] * (len(columns) - 1), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def promised(hetero: Mapping[str, Any]) -> str:
    """Return the table of what is promised beside what was found."""
    rows: list[list[object]] = [
        [what, f">= {least:.2f}", hetero[key], verdict(hetero[key] >= least)]
        for key, (least, what) in BARS.items()
    ]
    rss, cpu = hetero["agent_rss_mb"], hetero["agent_cpu_percent"]
    rows += [
        ["an idle agent's memory", f"<= {RSS_MAX_MB:.0f} MB", f"{rss} MB", verdict(rss <= RSS_MAX_MB)],
        ["an idle agent's part of a core", "<= 1%", f"{cpu}%", verdict(cpu <= CPU_MAX_PERCENT)],
    ]
    return table(["", "promised", "found", ""], rows)


def verdict(met: bool) -> str:
    return "met" if met else "**missed**"


def of_mix(name: str, mix: Mapping[str, Any]) -> list[str]:
    """Return what is told of machines of these speeds."""
    cpus = ", ".join(f"{count:g}" for count in mix["cpus"].values())
    speeds = mix["samples_per_s"]
    rows: list[list[object]] = [[f"sum of the {SOLO}s", speeds[SOLO], "1"]]
    rows += [[each, speeds[each], _over(speeds[each], speeds[SOLO])] for each in (EVEN, HAND)]
    rows.append([CHAIN, speeds[CHAIN], mix["efficiency"]])
    parts = [
        f"**{name}** (quotas of {cpus} CPUs): a step of the chain takes {mix['step_ms']} ms, in shares of "
        f"{', '.join(map(str, mix['shares']))} samples. {CHAIN} makes {mix['vs_even_split']} x the samples "
        f"of the even split, {mix['vs_hand_tuned']} x those of the split by hand.",
        table(["", "samples/s", "of the sum of solo speeds"], rows),
    ]
    if "after_halving" in mix:
        after = mix["after_halving"]
        each = ", ".join(map(str, after["each"]))
        parts.append(
            f"The fastest machine's quota was halved in mid-run ({after['cpus'][0]:g} to "
            f"{after['cpus'][1]:g} CPUs): the median of the steps 11 to 40 after it makes {after['kept']} of "
            f"the solo speeds then (each time: {each})."
        )
    return parts


def one_node(models: Mapping[str, Any]) -> str:
    """Return the table of the node alone against the plain loop."""
    names = {"5ms": "steps of 5 ms", "1ms": "steps of 1 ms", "granules_5ms": "batch norm and dropout, 5 ms"}
    rows = [
        [
            names.get(name, name),
            found["batch"],
            f"{found['plain_step_ms']} ms",
            found["ratio"],
            f"{found['more_ms_a_step']} ms",
        ]
        for name, found in models.items()
    ]
    return table(["model", "batch", "the plain loop's step", "speed kept", "more a step"], rows)


def growth(told: Mapping[str, Any]) -> list[str]:
    """Return both tables of growth."""
    nodes = [
        [size, each["samples_per_s"], each["speed_up"], each["efficiency"]]
        for size, each in told["nodes"].items()
    ]
    models = [
        [f"{each['parameters']:,}", f"{each['step_ms']} ms", each["samples_per_s"], each["efficiency"]]
        for each in told["parameters"].values()
    ]
    return [
        "Equal nodes, one convolutional model; the batch stays the same, so steps become shorter:",
        table(["nodes", "samples/s", "speed-up", "efficiency"], nodes),
        BY_PARAMETERS,
        table(["parameters", "step", "samples/s", "efficiency"], models),
    ]


def to_loss(goals: Mapping[str, Any]) -> str:
    """Return the table of times to a held-out loss."""
    rows = [
        [job, each["held_out_loss"], f"{each['chain_s']} s", f"{each['best_alone_s']} s", each["speed_up"]]
        for job, each in goals.items()
    ]
    return table(["job", "held-out loss", "the chain", "the fastest alone", "speed-up"], rows)


def of_forecast(told: Mapping[str, Any]) -> list[str]:
    """Return what is told of forecasts against what was measured."""
    benched, worst = told["benched"], told["worst"]
    columns = ["speeds", "links", "model", "trained", "forecast", "measured", "error"]
    return [
        "## Forecast against measured",
        f"{FORECAST} {told['within_10_percent']:.0%} of {len(told['cells'])} cells are within 10% (promised "
        f">= {forecasts.PROMISED_PART:.0%}); the worst is off by {worst['error']:+.0%} ({worst['speeds']}, "
        f"{worst['link']}, {worst['model']}).",
        table(columns, [forecasts.row(cell) for cell in told["cells"]]),
        f"A node behind a link of {benched['link_mbit']:g} Mbit/s stood by: {benched['reason']}. The others "
        f"make {benched['without']:.1f} samples/s without it, {benched['with_it']:.1f} with it.",
    ]


def _over(value: float, other: float) -> str:
    return f"{value / other:.3f}"


def _read(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    return found


if __name__ == "__main__":
    sys.exit(main())
