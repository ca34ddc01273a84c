"""Containers on a tailnet: they wait for it, train over it alone, and do without one that falls out of it."""

from __future__ import annotations

from functools import partial

import pytest

from daisychain.errors import AgentError, ProtocolError
from docker.engine.engine import Engine
from docker.live.chain import FILES, NAMES, live_chain
from docker.live.container import Container
from docker.live.job import NAME, SAMPLES
from docker.live.tailnet import LOGIN_PAGE, counters, tailnet, tcp_hosts
from support.progress import go_on_without, trains_together
from support.waiting import until

TAILNET_FILES = (*FILES, "tests/docker/live/tailnet.yaml")
WAIT_S = 40.0
STEPS = 200
GRADIENT_BYTES = SAMPLES * 8


@pytest.mark.timeout(240, func_only=True)
def test_three_containers_train_over_a_tailnet_and_over_nothing_else(docker: Engine) -> None:
    with live_chain(docker, TAILNET_FILES) as chain, tailnet(NAMES, chain.folder) as net:
        nodes = chain.up(*NAMES)
        for node in nodes:
            until(partial(_waits_for_its_login, node), WAIT_S, f"{node.name} does not say what it waits for")
        net.join(nodes, nodes)
        trains_together(nodes)

        first, before = nodes[0].step(), counters(nodes[0])
        until(lambda: nodes[0].step() >= first + STEPS, WAIT_S, "it does not train")
        after = counters(nodes[0])
        assert after["tailscale0"][1] - before["tailscale0"][1] >= STEPS * GRADIENT_BYTES
        for node in nodes:
            assert tcp_hosts(node) == {net.addresses[node.name]}, "whatever is sent has the tailnet's address"

        gone, *others = nodes
        net.leave(gone)
        go_on_without(others)
        net.join([gone], nodes)
        trains_together(nodes)
        chain.finish(nodes)
        for node in nodes:
            audit = node.summary(NAME)["audit"]
            assert (audit["samples_lost"], audit["samples_repeated"]) == (0, 0)


def _waits_for_its_login(node: Container) -> bool:
    """Whether it tells whoever asks that its tailnet needs a login, and where."""
    try:
        node.client.status()
    except (AgentError, ProtocolError) as refused:
        return "needs a login" in refused.message and LOGIN_PAGE in refused.remedy
    return False
