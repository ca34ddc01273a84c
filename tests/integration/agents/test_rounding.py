"""Real agents on machines that round differently: a person sees it before the first step."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from daisychain.cli.render import show_status
from daisychain.core.rounding import DIFFERENTLY
from support.agent_node import Node
from support.agents import chain
from support.job_folders import noisy_job
from support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(180)]


def shown(node: Node) -> str:
    """Return what `daisychain status` prints on a node; empty while it does not answer."""
    status, stream = node.status(), io.StringIO()
    if status is not None:
        show_status(Console(file=stream, width=200, soft_wrap=True), status)
    return stream.getvalue()


def test_status_and_logs_of_every_node_name_those_that_round_differently_before_step_1(
    tmp_path: Path,
) -> None:
    with chain(tmp_path) as agents:
        for name in ("ada", "bob"):
            noisy_job(agents.prepare(name) / "noisy", steps=100_000, reproducible=True)
        ada = agents.start("ada", "--min-nodes", "2", wait=False)
        bob = agents.start("bob", "--min-nodes", "2", facts={"instructions": "default"}, wait=False)
        nodes = [ada, bob]
        until(lambda: all(node.world_size() == 2 for node in nodes), 90.0, "no world of both")
        for node in nodes:
            assert DIFFERENTLY in shown(node), shown(node)
            assert "ada unlike bob" in shown(node) or "bob unlike ada" in shown(node)
            noted = [line for line in node.log.read_text().splitlines() if DIFFERENTLY in line]
            assert len(noted) == 1
            assert "WARNING" in noted[0]
            (train_log,) = (node.state / "runs").glob("*/train.log")
            text = train_log.read_text()
            assert text.index(DIFFERENTLY) < text.index("formed in"), "told before the world is there"
