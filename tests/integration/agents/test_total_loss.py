"""Every agent and trainer is killed and started again; the run goes on from what their disks hold."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from integration.agents.test_chain import ended_exactly
from support.agent_node import Node
from support.agents import Chain, chain
from support.progress import trains_together
from support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(300)]

EPOCHS = 300
FLAGS = ("--min-nodes", "2", "--checkpoint-every-s", "1")


def saved(node: Node) -> dict[str, int]:
    """Return the step of the newest checkpoint of each run on a node's disk."""
    found: dict[str, int] = {}
    for path in sorted(node.state.glob("runs/*/checkpoints/*.state")):
        found[path.parent.parent.name] = int(path.stem)
    return found


def kill(node: Node) -> None:
    node.signal_all(signal.SIGKILL)
    node.process.wait()


def test_a_chain_that_was_killed_as_a_whole_goes_on_where_its_disks_are(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        for name in ("ada", "bob"):
            agents.write_job(name, epochs=EPOCHS)
        nodes = start(agents, "ada", "bob")
        until(lambda: all(saved(node) for node in nodes), 30, "a checkpoint on each disk")
        reached = nodes[0].step()
        for node in nodes:
            kill(node)
        disks = [saved(node) for node in nodes]
        (run_id,) = {run for disk in disks for run in disk}
        greatest = max(disk[run_id] for disk in disks)
        assert greatest > 0
        again = start(agents, "ada", "bob")
        audit = ended_exactly(agents, again, epochs=EPOCHS)
        first, second = audit["worlds"]
        assert (first["size"], second["size"]) == (2, 2)
        assert second["first_step"] == greatest + 1 <= reached + 10
        assert saved(again[0]) == saved(again[1]) == {}, "a finished run keeps no checkpoint"


def test_an_old_disk_with_more_steps_of_an_earlier_run_of_the_job_adds_none_to_this_one(
    tmp_path: Path,
) -> None:
    """Bob died when the first run was far; it was cancelled and the job submitted again without him."""
    with chain(tmp_path) as agents:
        for name in ("ada", "bob"):
            agents.write_job(name, epochs=EPOCHS)
        ada, bob = start(agents, "ada", "bob")
        until(lambda: bool(saved(bob)), 30, "a checkpoint on bob's disk")
        kill(bob)
        ((old_run, old_step),) = saved(bob).items()
        cancelled = ada.client.cancel("counting")
        assert cancelled.run_id == old_run
        until(lambda: not saved(ada), 20, "the cancelled run's checkpoints to go")
        new_run = ada.client.submit("counting").card.run_id
        assert new_run != old_run
        again = agents.start("bob", *FLAGS)
        trains_together([ada, again])
        assert again.step() < old_step
        until(lambda: old_run not in saved(again), 20, "what bob kept of the old run to go")
        until(lambda: new_run in saved(again), 30, "a checkpoint of the new run on bob's disk")
        kill(ada)
        kill(again)
        step = saved(again)[new_run]
        alone = agents.start("bob", *FLAGS)  # ada, who was asked for the new run, never comes back
        until(lambda: alone.step() > step, 90, "bob to go on alone with the new run")
        assert alone.knows(lambda status: status.view.trainer.run_id == new_run)
        ended_exactly(agents, [alone], epochs=EPOCHS)


def start(agents: Chain, *names: str) -> list[Node]:
    """Start agents that hold the same job and wait until all of them train it in one world."""
    nodes = [agents.start(name, *FLAGS, wait=False) for name in names]
    for node in nodes:
        node.await_start()
    trains_together(nodes)
    return nodes
