"""The whole chain as processes: agents find each other, train one job, and outlive each other.

The job counts its own visits: each parameter ends as the number of epochs, whatever happened.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from daisychain.core.jobs import JobState
from support.agents import Chain, Node, chain, write_counting_job
from support.waiting import until

JOIN_S = 60.0
END_S = 90.0
EPOCHS = 40


def start_chain(agents: Chain, *names: str, epochs: int = EPOCHS, pause_s: float = 0.02) -> list[Node]:
    """Start agents that hold the same job and wait until all of them train it in one world."""
    for name in names:
        write_counting_job(agents.prepare(name), epochs=epochs, pause_s=pause_s)
    nodes = [agents.start(name, "--min-nodes", str(len(names))) for name in names]
    trains_together(nodes)
    return nodes


def trains_together(nodes: list[Node], timeout_s: float = JOIN_S) -> None:
    """Wait until each of them has committed a step in a world of them all."""

    def together() -> bool:
        return all(node.world_size() == len(nodes) and node.step() > 0 for node in nodes)

    until(together, timeout_s, f"no world of {[node.name for node in nodes]}")


def commits_on(node: Node, timeout_s: float) -> float:
    """Wait for the node's next committed step; return the seconds it took."""
    before = node.step()
    return until(lambda: node.step() > before, timeout_s, f"{node.name} commits nothing after step {before}")


def ended_exactly(nodes: list[Node], epochs: int = EPOCHS) -> None:
    """Every node finished and holds one model; it and the journal count every sample once an epoch."""
    for node in nodes:
        until(lambda node=node: node.state_of("counting") is JobState.FINISHED, END_S, f"{node.name} goes on")  # type: ignore[misc]
    models = []
    for node in nodes:
        counts = load_file(node.jobs / "counting" / "result" / "model.safetensors")["counts"]
        assert np.array_equal(counts, np.full(256, float(epochs))), counts
        models.append(counts.tobytes())
        steps = [line["step"] for line in node.journal("counting") if "loss" in line and "samples" in line]
        assert steps == list(range(1, 8 * epochs + 1))
        audit = node.summary("counting")["audit"]
        assert (audit["samples_lost"], audit["samples_repeated"]) == (0, 0)
    assert len(set(models)) == 1


def test_three_agents_find_each_other_and_train_one_job(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        nodes = start_chain(agents, "ada", "bob", "cem", epochs=6)
        assert sum(node.leads() for node in nodes) == 1
        ended_exactly(nodes, epochs=6)
        assert {node.summary("counting")["audit"]["worlds"][0]["size"] for node in nodes} == {3}
        until(lambda: all(node.trainer_pid is None for node in nodes), 10.0, "trainers outlive the run")


def test_the_coordinator_killed_in_mid_run_costs_no_step(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        nodes = start_chain(agents, "ada", "bob", "cem")
        leader = agents.leader()
        others = [node for node in nodes if node is not leader]
        leader.signal_all(signal.SIGKILL)
        killed_at = time.monotonic()
        leader.process.wait()
        until(lambda: all(node.world_size() == 2 for node in others), 10.0, "the survivors form no world")
        commits_on(others[0], 10.0)
        assert time.monotonic() - killed_at < 3.0
        ended_exactly(others)
        audit = others[0].summary("counting")["audit"]
        assert [world["size"] for world in audit["worlds"]][-2:] == [3, 2]
        assert audit["coordinator_changes"] == 1


def test_a_worker_killed_in_mid_run_costs_no_step(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        nodes = start_chain(agents, "ada", "bob", "cem")
        victim = next(node for node in nodes if not node.leads())
        others = [node for node in nodes if node is not victim]
        victim.signal_all(signal.SIGKILL)
        killed_at = time.monotonic()
        victim.process.wait()
        until(lambda: all(node.world_size() == 2 for node in others), 10.0, "the survivors form no world")
        commits_on(others[0], 10.0)
        assert time.monotonic() - killed_at < 3.0
        ended_exactly(others)
        assert others[0].summary("counting")["audit"]["coordinator_changes"] == 0


def test_a_trainer_alone_that_dies_comes_back_as_a_joiner(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        nodes = start_chain(agents, "ada", "bob", epochs=120)
        trainer = nodes[1].trainer_pid
        assert trainer is not None
        os.kill(trainer, signal.SIGKILL)
        until(lambda: nodes[0].world_size() == 1, 10.0, "the survivor does not go on")
        trains_together(nodes)
        ended_exactly(nodes, epochs=120)


def test_a_frozen_node_is_left_behind_and_rejoins_when_it_wakes(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        nodes = start_chain(agents, "ada", "bob", "cem", epochs=150)
        frozen = next(node for node in nodes if not node.leads())
        others = [node for node in nodes if node is not frozen]
        frozen.signal_all(signal.SIGSTOP)
        frozen_at = time.monotonic()
        until(lambda: all(node.world_size() == 2 for node in others), 15.0, "the others form no world")
        commits_on(others[0], 10.0)
        assert time.monotonic() - frozen_at < 5.0
        frozen.signal_all(signal.SIGCONT)
        trains_together(nodes)
        ended_exactly(nodes, epochs=150)


def test_a_frozen_coordinator_is_replaced_and_disturbs_nothing_when_it_wakes(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        nodes = start_chain(agents, "ada", "bob", "cem", epochs=150)
        frozen = agents.leader()
        others = [node for node in nodes if node is not frozen]
        frozen.signal_all(signal.SIGSTOP)
        frozen_at = time.monotonic()
        until(lambda: all(node.world_size() == 2 for node in others), 15.0, "the others form no world")
        commits_on(others[0], 10.0)
        assert time.monotonic() - frozen_at < 5.0
        frozen.signal_all(signal.SIGCONT)
        trains_together(nodes)
        until(lambda: sum(node.leads() for node in nodes) == 1, 10.0, "two lead")
        ended_exactly(nodes, epochs=150)


def test_a_fourth_node_joins_a_running_world(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        nodes = start_chain(agents, "ada", "bob", "cem", epochs=200)
        write_counting_job(agents.prepare("dan"), epochs=200)
        nodes.append(agents.start("dan", wait=False))
        until(lambda: nodes[3].world_size() == 4, 30.0, "dan does not join")
        joined_s = time.monotonic() - nodes[3].began_at
        ended_exactly(nodes, epochs=200)
        worlds = nodes[0].summary("counting")["audit"]["worlds"]
        assert [world["size"] for world in worlds][-2:] == [3, 4]
        assert worlds[-1]["pause_s"] < 2.0
        assert joined_s < 20.0


def test_a_node_that_leaves_in_order_is_missed_at_once(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        nodes = start_chain(agents, "ada", "bob", "cem")
        leaver = next(node for node in nodes if not node.leads())
        others = [node for node in nodes if node is not leaver]
        assert leaver.stop() == 0
        until(lambda: all(node.world_size() == 2 for node in others), 5.0, "the others form no world")
        ended_exactly(others)


def test_a_node_whose_copy_differs_stands_by_and_says_so(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        for name in ("ada", "bob"):
            write_counting_job(agents.prepare(name), epochs=150)
        other = write_counting_job(agents.prepare("cem"), epochs=150)
        (other / "notes.txt").write_text("not in the others' copy")
        nodes = [agents.start(name) for name in ("ada", "bob")]
        trains_together(nodes)
        third = agents.start("cem")
        until(
            lambda: third.knows(lambda status: "counting" in status.view.standby),
            20.0,
            "it does not say why it stands by",
        )
        assert all(node.world_size() == 2 for node in nodes)


def test_a_failing_job_fails_with_its_reason_and_the_next_one_runs(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        for name in ("ada", "bob"):
            broken = write_counting_job(agents.prepare(name), "a-broken", epochs=5)
            code = (broken / "counting.py").read_text().replace("return Counts()", "return Count()")
            (broken / "counting.py").write_text(code)
            write_counting_job(agents.prepare(name), epochs=5)
        nodes = [agents.start(name, "--min-nodes", "2") for name in ("ada", "bob")]
        ended_exactly(nodes, epochs=5)
        for node in nodes:
            cards = node.client.jobs()
            failed = next(card for card in cards if card.name == "a-broken")
            assert failed.state is JobState.FAILED
            assert "counting.py" in failed.reason
            assert "Count" in failed.reason
