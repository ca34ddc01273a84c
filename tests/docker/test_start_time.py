"""From `docker compose up` of a chain's last node, its image being there, to the first step with it."""

from __future__ import annotations

import time

import pytest

from bench.report import percentile
from docker.engine.engine import Engine
from docker.live.chain import live_chain
from support.progress import trains_together

TRIALS = 10
PROMISED_P95_S = 10.0


@pytest.mark.timeout(300, func_only=True)
def test_a_node_that_is_switched_on_trains_within_ten_seconds(
    docker: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    with live_chain(docker) as chain:
        others = chain.up("ada", "bob")
        trains_together(others)
        found = []
        for _ in range(TRIALS):
            started = time.monotonic()
            nodes = [*others, *chain.up("cleo")]
            trains_together(nodes)
            found.append(time.monotonic() - started)
            chain.forget("cleo")
        with capsys.disabled():
            print(f"\nfrom `up` to the first step: {sorted(round(each, 1) for each in found)} s")
        assert percentile(found, 95) <= PROMISED_P95_S
