"""Two machines of unequal speed: each takes the part of a batch that its measured speed allows."""

from __future__ import annotations

import itertools
import re
import shutil
import statistics
from pathlib import Path

import pytest

from daisychain.core.shares import Capacity
from support.agent_node import Node
from support.agents import Chain, chain
from support.cgroups import cpu_group
from support.waiting import until

DIGITS = Path(__file__).parents[3] / "jobs" / "digits"
BATCH = 128
EPOCHS = 40
LOAD_S = 90.0
END_S = 90.0

QUARTER = 0.25
TOLERANCE = 0.15


def give_digits(agents: Chain, name: str) -> None:
    """Give a node the digits as they are in the repository, but for a shorter run."""
    folder = agents.prepare(name) / "digits"
    shutil.copytree(DIGITS, folder, ignore=shutil.ignore_patterns("result"))
    text = (folder / "job.yaml").read_text()
    assert f"global_batch_size: {BATCH}\n" in text
    text, changed = re.subn(r"^epochs: \d+$", f"epochs: {EPOCHS}", text, flags=re.MULTILINE)
    assert changed == 1
    (folder / "job.yaml").write_text(text)


def has_measured(node: Node) -> bool:
    """Whether the node's trainer is past its measurement: it opens its journal next.

    Looked up in files: an agent that is asked all the time would take its trainer's part of a small quota.
    """
    return any(node.state.glob("runs/*/metrics.jsonl"))


def capacity(node: Node) -> Capacity | None:
    """Return what the node's trainer reports of its own speed at this job; None while it loads."""
    status = node.status()
    return status.view.trainer.capacity if status is not None else None


@pytest.mark.long
def test_shares_are_in_the_ratio_of_the_speeds_that_quotas_leave(tmp_path: Path) -> None:
    with cpu_group(1.0) as whole, cpu_group(QUARTER) as quarter, chain(tmp_path) as agents:
        for name in ("fast", "slow"):
            give_digits(agents, name)
        fast = agents.start("fast", "--min-nodes", "2", wait=False, within=whole)
        slow = agents.start("slow", "--min-nodes", "2", wait=False, within=quarter)
        until(lambda: has_measured(fast) and has_measured(slow), LOAD_S, "a trainer is not ready")
        until(lambda: None not in (capacity(fast), capacity(slow)), LOAD_S, "a capacity is not told")
        quick, slower = capacity(fast), capacity(slow)
        assert quick is not None and slower is not None
        assert {fast.process.pid, fast.trainer_pid} <= set(whole.pids())
        assert {slow.process.pid, slow.trainer_pid} <= set(quarter.pids())
        for node in (fast, slow):
            summary = node.jobs / "digits" / "result" / "summary.json"
            until(summary.exists, END_S, f"{node.name} goes on")

        # Both measured themselves alone, side by side, on whole batches. A quota of 5 ms periods stops a
        # process many times a second: a measurement that does not count the stops finds two equal nodes.
        measured = slower.step_s(BATCH) / quick.step_s(BATCH)
        found = f"measured {quick} and {slower}: {measured:.2f} to 1"
        assert measured > (1 - TOLERANCE) / QUARTER, found
        assert quarter.throttled() > 100, found

        lines = [line for line in fast.journal("digits") if line.get("samples") == BATCH]
        assert all(line["world"]["size"] == 2 for line in lines)
        settled = [line["world"] for line in lines[len(lines) // 2 :]]
        shares = [
            world["shares"] if world["coordinator"] == "fast" else world["shares"][::-1] for world in settled
        ]
        ratios = [many / few for many, few in shares]
        ratio, seen = statistics.median(ratios), sorted(set(map(tuple, shares)))
        found += f"; shares {ratio:.2f} to 1, in the second half {seen}"
        print(found)
        assert ratio == pytest.approx(measured, rel=TOLERANCE), found
        changes = sum(then != now for then, now in itertools.pairwise(shares))
        assert changes <= len(shares) // 20, f"{changes} changes in {len(shares)} steps; {found}"
