"""One real agent: what it costs, who may use its folder, and that nothing of it remains."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from daisychain.runtime.agent_status import AgentStatus
from support.agent_node import Node, is_gone
from support.agents import Chain, chain
from support.waiting import until

RSS_MAX_BYTES = 80_000_000
LOAD_S = 60.0
WINDOW_S = 20.0


def training(agents: Chain, name: str = "alone") -> Node:
    agents.write_job(name, epochs=1000)
    node = agents.start(name)
    until(lambda: node.step() > 0, LOAD_S, "no step was committed")
    return node


def test_an_idle_agent_is_small_and_has_no_torch(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        node = agents.start("idle")
        until(node.leads, 20.0, "it does not lead itself")
        process = psutil.Process(node.process.pid)
        rss_bytes = process.memory_info().rss
        maps = Path(f"/proc/{node.process.pid}/maps").read_text()
        assert "libtorch" not in maps
        assert "numpy" not in maps
        assert rss_bytes <= RSS_MAX_BYTES, f"{rss_bytes / 1e6:.1f} MB"
        assert process.children() == []


@pytest.mark.long  # a measurement: nothing may run beside it
def test_idle_agents_that_watch_each_other_cost_next_to_nothing(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        nodes = [agents.start(name) for name in ("ada", "bob")]
        until(lambda: all(node.knows(sees_a_coordinator) for node in nodes), 20.0, "they do not lead")
        process = psutil.Process(nodes[0].process.pid)
        began_at, before_s = time.monotonic(), sum(process.cpu_times()[:2])
        until(lambda: time.monotonic() - began_at > WINDOW_S, 2 * WINDOW_S, "the window is open")
        spent = (sum(process.cpu_times()[:2]) - before_s) / (time.monotonic() - began_at)
        assert spent <= 0.01, f"{100 * spent:.1f}% of a core"


def sees_a_coordinator(status: AgentStatus) -> bool:
    return status.view.coordinator is not None and len(status.view.peers) == 1


def test_the_socket_and_folder_are_private_and_go_with_the_agent(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        node = agents.start("idle")
        socket = node.state / "agent.sock"
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        assert stat.S_IMODE(node.state.stat().st_mode) == 0o700
        assert node.stop() == 0
        assert not socket.exists()


def test_a_second_agent_on_one_state_folder_is_refused(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        node = agents.start("first")
        second = subprocess.run(
            [sys.executable, "-m", "daisychain.cli", "node", "--state-folder", str(node.state)],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert second.returncode == 6
        assert f"another agent (process {node.process.pid}) uses the state folder" in second.stderr
        assert "--state-folder" in second.stderr
        assert node.status() is not None


def test_sigterm_in_mid_run_leaves_in_time_and_ends_the_trainer(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        node = training(agents)
        trainer = node.trainer_pid
        assert trainer is not None
        node.process.send_signal(signal.SIGTERM)
        until(lambda: node.process.poll() is not None, 5.0, "the agent is still there")
        assert node.process.returncode == 0
        assert is_gone(trainer)
        assert "left: its user stopped it" in node.log.read_text()


def test_an_agent_that_is_killed_takes_its_trainer_with_it(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        node = training(agents)
        trainer = node.trainer_pid
        assert trainer is not None
        node.process.kill()
        node.process.wait()
        until(lambda: is_gone(trainer), 2.0, "the trainer outlives its agent")
        again = agents.start("alone")  # its lock and its stale socket are in nobody's way
        until(lambda: again.step() > 0, LOAD_S, "the run does not go on")


def test_a_trainer_has_no_secret_in_its_environment(tmp_path: Path) -> None:
    os.environ["DAISYCHAIN_LOG_LEVEL"] = "debug"
    os.environ["TS_AUTHKEY"] = "tskey-secret"
    try:
        with chain(tmp_path) as agents:
            node = training(agents)
            key = node.state.parent.parent / "cluster.key"
            secret = next(line for line in key.read_text().splitlines() if not line.startswith("#"))
            environment = Path(f"/proc/{node.trainer_pid}/environ").read_bytes().decode()
            assert "GLOO_SOCKET_IFNAME=lo" in environment
            assert "DAISYCHAIN" not in environment
            assert "TS_AUTHKEY" not in environment
            assert secret not in environment
            assert str(key) not in environment
    finally:
        del os.environ["DAISYCHAIN_LOG_LEVEL"], os.environ["TS_AUTHKEY"]


def test_a_lost_record_means_a_new_node_id(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        node = agents.start("idle")
        status = node.status()
        assert status is not None
        first_id, first_life = status.view.me.node_id, status.view.me.incarnation
        assert node.stop() == 0
        again = agents.start("idle")
        status = again.status()
        assert status is not None
        assert (status.view.me.node_id, status.view.me.incarnation) == (first_id, first_life + 1)
        assert again.stop() == 0
        (again.state / "record.json").write_text("{")
        third = agents.start("idle")
        status = third.status()
        assert status is not None
        assert status.view.me.node_id != first_id
        assert any("record.json.damaged-1" in problem for problem in status.problems)
