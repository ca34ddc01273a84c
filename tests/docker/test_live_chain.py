"""Containers in mid-run: a node is added; the coordinator's container is killed, paused, cut off."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest

from docker.engine.engine import Engine
from docker.live.chain import live_chain
from docker.live.container import Container
from docker.live.job import NAME, counts_of
from support.progress import go_on_without, next_step_s, trains_together

SILENT_S = 2.5
"""To the next step of the others: promised of a silent death. A killed container's network goes with it, at
once or a moment later, so that a dial after the reset is refused or never answered: it may be one, too."""

ENGINE_S = 1.0
"""What the engine takes to pause a container, and a machine to come to it."""


@pytest.mark.timeout(200, func_only=True)
def test_a_chain_of_containers_survives_the_kill_the_pause_and_the_cut_of_its_coordinator(
    docker: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    with live_chain(docker) as chain:
        nodes = chain.up("ada", "bob")
        trains_together(nodes)
        nodes += chain.up("cleo")
        trains_together(nodes)
        for node in nodes:
            _is_confined(node)
        struck = [
            _strike(nodes, Container.kill, lambda node: chain.up(node.name)),
            _strike(nodes, Container.pause, Container.unpause),
            _strike(nodes, Container.cut, Container.heal),
        ]
        chain.finish(nodes)
        for node in nodes:
            _result_is_whole(node)
        assert len({(node.jobs / NAME / "result/model.safetensors").read_bytes() for node in nodes}) == 1
        killed_s, paused_s, cut_s = [next_step_s(witness.journal(NAME), at) for witness, at in struck]
        with capsys.disabled():
            print(f"\nto the next step: kill {killed_s:.2f} s, pause {paused_s:.2f} s, cut {cut_s:.2f} s")
        assert killed_s <= SILENT_S and cut_s <= SILENT_S and paused_s <= SILENT_S + ENGINE_S


def _strike(
    nodes: Sequence[Container], fault: Callable[[Container], float], undo: Callable[[Container], object]
) -> tuple[Container, float]:
    """Do it to the coordinator, see the others go on and the node come back; return a survivor, and when."""
    (victim,) = (node for node in nodes if node.leads())
    others = [node for node in nodes if node is not victim]
    at = fault(victim)
    go_on_without(others)
    undo(victim)
    trains_together(nodes)
    return others[0], at


def _is_confined(node: Container) -> None:
    """It runs as 10001 throughout, on a root that nobody writes to, and without any right."""
    assert node.inspect("{{.HostConfig.ReadonlyRootfs}}") == "true"
    processes = psutil.Process(node.pid), *psutil.Process(node.pid).children(recursive=True)
    assert len(processes) >= 3, "init, agent, trainer"
    for process in processes:
        assert set(process.uids()) == {10001}
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert re.search(r"^CapEff:\s*0+$", status, re.MULTILINE), f"{process.pid} has rights:\n{status}"
        assert re.search(r"^NoNewPrivs:\s*1$", status, re.MULTILINE)


def _result_is_whole(node: Container) -> None:
    result = node.jobs / NAME / "result"
    assert {path.stat().st_uid for path in (result, *result.iterdir())} == {10001}
    summary = node.summary(NAME)
    audit = summary["audit"]
    assert (audit["samples_lost"], audit["samples_repeated"]) == (0, 0)
    assert counts_of(result / "model.safetensors", summary["steps"])
