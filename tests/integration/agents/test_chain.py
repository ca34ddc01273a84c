"""The whole chain as processes: agents find each other, train one job, and outlive each other.

The job counts its own visits: each parameter ends as the number of epochs, whatever happened.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from daisychain.core.jobs import JobState
from support.agent_node import Node
from support.agents import STEPS_AN_EPOCH, Chain, chain
from support.progress import go_on_without, next_step_s, trains_together
from support.waiting import until

END_S = 90.0
EPOCHS = 40
LONG = 100
"""Epochs of a run in which a node has to start and join; they hurry once it has."""

KILLED_S, FROZEN_S, LEFT_S = 1.0, 2.5, 0.5
"""From a fault to the next committed step, at most: both processes killed, both frozen, an orderly leave."""


def start_chain(agents: Chain, *names: str, epochs: int = EPOCHS) -> list[Node]:
    """Start agents that hold the same job and wait until all of them train it in one world."""
    for name in names:
        agents.write_job(name, epochs=epochs)
    nodes = [agents.start(name, "--min-nodes", str(len(names)), wait=False) for name in names]
    for node in nodes:
        node.await_start()
    trains_together(nodes)
    return nodes


def went_on_within(node: Node, fault_at: float, bound_s: float) -> None:
    """Assert that a new world committed a step within ``bound_s`` of the fault (Unix seconds)."""
    took_s = next_step_s(node.journal("counting"), fault_at)
    print(f"from the fault to the next committed step: {took_s:.3f} s")
    assert took_s < bound_s, f"{took_s:.2f} s to the next committed step"


def ended_exactly(agents: Chain, nodes: list[Node], epochs: int = EPOCHS) -> dict[str, Any]:
    """Let the run end; every node holds one model, and it and the journal count every sample once an epoch.

    Returns the audit of the run.
    """
    agents.hurry_up()
    for node in nodes:
        until(partial(finished, node), END_S, f"{node.name} goes on")
    models = set()
    for node in nodes:
        counts = load_file(node.jobs / "counting" / "result" / "model.safetensors")["counts"]
        assert np.array_equal(counts, np.full(256, float(epochs))), counts
        models.add(counts.tobytes())
        steps = [line["step"] for line in node.journal("counting") if "samples" in line]
        assert steps == list(range(1, STEPS_AN_EPOCH * epochs + 1))
        audit = node.summary("counting")["audit"]
        assert (audit["samples_lost"], audit["samples_repeated"]) == (0, 0)
    assert len(models) == 1
    return dict(nodes[0].summary("counting")["audit"])


def finished(node: Node) -> bool:
    return node.state_of("counting") is JobState.FINISHED


def sizes(audit: dict[str, Any]) -> list[int]:
    return [world["size"] for world in audit["worlds"]]


def test_nodes_without_multicast_meet_by_seeds(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        ports = free_ports(2)
        seeds = ",".join(f"127.0.0.1:{port}" for port in ports)
        nodes = []
        for name, port in zip(("ada", "bob"), ports, strict=True):
            agents.write_job(name, epochs=EPOCHS)
            flags = ("--no-mdns", "--port", str(port), "--seeds", seeds, "--min-nodes", "2")
            nodes.append(agents.start(name, *flags, wait=False))
        trains_together(nodes)
        assert sizes(ended_exactly(agents, nodes)) == [2]


def test_whoever_is_killed_in_mid_run_costs_no_step_and_comes_back(tmp_path: Path) -> None:
    """First a worker, agent and trainer; then the trainer alone of the same node, started again."""
    with chain(tmp_path) as agents:
        nodes = start_chain(agents, "ada", "bob", "cem", epochs=LONG)
        victim = next(node for node in nodes if not node.leads())
        others = [node for node in nodes if node is not victim]
        killed_at = time.time()
        victim.signal_all(signal.SIGKILL)
        go_on_without(others)
        victim.process.wait()
        again = agents.start(victim.name)
        trains_together([*others, again])
        trainer = again.trainer_pid
        assert trainer is not None
        trainer_killed_at = time.time()
        os.kill(trainer, signal.SIGKILL)
        go_on_without(others)
        trains_together([*others, again])
        audit = ended_exactly(agents, [*others, again], epochs=LONG)
        assert sizes(audit) == [3, 2, 3, 2, 3]
        assert audit["coordinator_changes"] == 0
        went_on_within(others[0], killed_at, KILLED_S)
        went_on_within(others[0], trainer_killed_at, KILLED_S)


@pytest.mark.long
def test_a_frozen_node_is_left_behind_and_rejoins_when_it_wakes(tmp_path: Path) -> None:
    """First a worker, then the coordinator."""
    with chain(tmp_path) as agents:
        nodes = start_chain(agents, "ada", "bob", "cem", epochs=LONG)
        faults: list[tuple[Node, float]] = []
        for coordinator in (False, True):
            frozen = next(node for node in nodes if node.leads() is coordinator)
            others = [node for node in nodes if node is not frozen]
            frozen_at = time.time()
            frozen.signal_all(signal.SIGSTOP)
            go_on_without(others)
            frozen.signal_all(signal.SIGCONT)
            trains_together(nodes)
            until(lambda: sum(node.leads() for node in nodes) == 1, 10.0, "two lead")
            faults.append((others[0], frozen_at))
        assert sizes(ended_exactly(agents, nodes, epochs=LONG)) == [3, 2, 3, 2, 3]
        for witness, at in faults:
            went_on_within(witness, at, FROZEN_S)


@pytest.mark.long
def test_a_fourth_node_joins_a_running_world(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        nodes = start_chain(agents, "ada", "bob", "cem", epochs=LONG)
        agents.write_job("dan", epochs=LONG)
        nodes.append(agents.start("dan", wait=False))
        until(lambda: nodes[3].world_size() == 4, 30.0, "dan does not join")
        joined_s = time.monotonic() - nodes[3].began_at
        audit = ended_exactly(agents, nodes, epochs=LONG)
        assert sizes(audit) == [3, 4]
        assert audit["worlds"][-1]["pause_s"] < 0.5
        assert joined_s < 10.0


def test_an_orderly_leave_and_the_coordinators_death_cost_no_step(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        nodes = start_chain(agents, "ada", "bob", "cem")
        assert sum(node.leads() for node in nodes) == 1
        leader = agents.leader()
        leaver, last = (node for node in nodes if node is not leader)
        left_at = time.time()
        leaver.process.send_signal(signal.SIGTERM)
        go_on_without([leader, last])
        assert leaver.process.wait(5.0) == 0
        killed_at = time.time()
        leader.signal_all(signal.SIGKILL)
        go_on_without([last])
        leader.process.wait()
        audit = ended_exactly(agents, [last])
        assert sizes(audit) == [3, 2, 1]
        assert audit["coordinator_changes"] == 1
        went_on_within(last, left_at, LEFT_S)
        went_on_within(last, killed_at, KILLED_S)
        until(lambda: last.trainer_pid is None, 10.0, "its trainer outlives the run")


def test_a_node_whose_copy_differs_stands_by_and_says_so(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        for name in ("ada", "bob"):
            agents.write_job(name, epochs=EPOCHS)
        (agents.write_job("cem", epochs=EPOCHS) / "notes.txt").write_text("not in the others' copy")
        nodes = [agents.start(name) for name in ("ada", "bob")]
        trains_together(nodes)
        third = agents.start("cem")
        until(lambda: "counting" in standby(third), 20.0, "it does not say why it stands by")
        assert all(node.world_size() == 2 for node in nodes)


def standby(node: Node) -> str:
    status = node.status()
    return "" if status is None else status.view.standby


@pytest.mark.long
def test_a_failing_job_fails_with_its_reason_and_the_next_one_runs(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        for name in ("ada", "bob"):
            code = agents.write_job(name, "a-broken", epochs=5) / "counting.py"
            code.write_text(code.read_text().replace("return Counts()", "return Count()"))
            agents.write_job(name, epochs=EPOCHS)
        nodes = [agents.start(name, "--min-nodes", "2", wait=False) for name in ("ada", "bob")]
        trains_together(nodes)
        for node in nodes:
            failed = next(card for card in node.client.jobs() if card.name == "a-broken")
            assert failed.state is JobState.FAILED
            assert "counting.py" in failed.reason
            assert "Count" in failed.reason
        ended_exactly(agents, nodes)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
