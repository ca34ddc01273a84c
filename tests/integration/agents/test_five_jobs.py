"""Five jobs dropped at once on three nodes: all are trained in their order, once, through two deaths."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from daisychain.core.ids import RunId
from daisychain.core.jobs import JobCard, JobState
from daisychain.core.queue import queue_order
from support.agent_node import Node
from support.agents import STEPS_AN_EPOCH, Chain, chain
from support.progress import go_on_without, trains_together
from support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(400)]

EPOCHS = 50
STEPS = EPOCHS * STEPS_AN_EPOCH
DROPPED = {"wide": "ada", "deep": "bob", "tiny": "cem", "late": "ada", "soon": "bob"}
"""The five jobs, and on which node each is dropped."""

URGENT = "soon"
"""It goes before all others that wait."""

AT_STEP = 20
"""A death comes when the run is so far."""


def drop(agents: Chain) -> None:
    """Drop the five, each as a copy that is renamed when it is whole."""
    for seed, (job, node) in enumerate(DROPPED.items(), start=1):
        folder = agents.write_job(
            node, f"{job}.part", epochs=EPOCHS, seed=seed, priority=3 if job == URGENT else 0
        )
        folder.rename(folder.with_name(job))


def cards(node: Node) -> dict[str, JobCard]:
    """Return what a node knows of the runs, by their jobs' names."""
    status = node.status()
    found = () if status is None else status.view.jobs
    assert len({card.name for card in found}) == len(found), "a job has two runs"
    return {card.name: card for card in found}


def holds_all(node: Node) -> bool:
    return all((node.jobs / job / "job.yaml").exists() for job in DROPPED) and len(cards(node)) == 5


def trained_now(node: Node) -> RunId | None:
    """Return the run that the node trains with others, or alone."""
    status = node.status()
    return None if status is None or node.world_size() == 0 else status.view.trainer.run_id


def told_by_jobs(node: Node) -> list[dict[str, Any]]:
    """Return what `daisychain jobs --json` prints on a node."""
    command = [sys.executable, "-m", "daisychain.cli", "jobs", "--json", "--state-folder", str(node.state)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


class Ends:
    """The order in which runs end, as any of the nodes tells it first."""

    def __init__(self) -> None:
        self.order: list[str] = []

    def look(self, nodes: Sequence[Node]) -> int:
        """Look at what the nodes know now; return how many runs have ended."""
        for node in nodes:
            for name, card in cards(node).items():
                if card.state.ended and name not in self.order:
                    assert card.state is JobState.FINISHED, card
                    self.order.append(name)
        return len(self.order)


def die_and_return(agents: Chain, nodes: list[Node], victim: Node, ends: Ends) -> list[Node]:
    """SIGKILL a node, agent and trainer, in the middle of a run; start it again; return the nodes then."""
    run = trained_now(victim)
    others = [node for node in nodes if node is not victim]
    victim.signal_all(signal.SIGKILL)
    go_on_without(others)
    victim.process.wait()
    ends.look(others)
    again = agents.start(victim.name)
    nodes = [*others, again]
    trains_together(nodes)
    assert {trained_now(node) for node in nodes} == {run}, "it comes back while the same run goes on"
    ends.look(nodes)
    return nodes


def check_result(node: Node, job: str) -> dict[str, Any]:
    """Assert that a node's result of a job is of a run that saw each sample once an epoch; its summary."""
    counts = load_file(node.jobs / job / "result" / "model.safetensors")["counts"]
    assert np.array_equal(counts, np.full(256, float(EPOCHS))), (node.name, job, counts)
    steps = [line["step"] for line in node.journal(job) if "samples" in line]
    assert steps == list(range(1, STEPS + 1)), (node.name, job)
    summary = node.summary(job)
    assert (summary["audit"]["samples_lost"], summary["audit"]["samples_repeated"]) == (0, 0)
    return summary


def test_five_jobs_are_trained_in_order_through_two_deaths(tmp_path: Path) -> None:
    """One worker dies in the second run and the coordinator in the third; each comes back and helps on."""
    with chain(tmp_path) as agents:
        nodes = [agents.start(name, "--min-nodes", "3", wait=False) for name in ("ada", "bob", "cem")]
        for node in nodes:
            node.await_start()
        until(lambda: sum(node.leads() for node in nodes) == 1, 30.0, "nobody leads")
        drop(agents)
        until(lambda: all(holds_all(node) for node in nodes), 60.0, "not everybody has all five folders")
        trains_together(nodes)
        ends = Ends()
        assert ends.look(nodes) == 0, "the first run ended before all five were known"
        known = cards(nodes[0])
        first = next(name for name, card in known.items() if card.run_id == trained_now(nodes[0]))
        wanted = [first, *(c.name for c in sorted(known.values(), key=queue_order) if c.name != first)]

        for place, leads in ((1, False), (2, True)):
            await_turn(nodes, ends, wanted, place)
            assert trained_now(nodes[0]) == known[wanted[place]].run_id, f"out of turn after {ends.order}"
            victim = next(node for node in nodes if node.leads() is leads)
            nodes = die_and_return(agents, nodes, victim, ends)

        agents.hurry_up()
        until(partial(all_ended, nodes, ends), 180.0, "not all five end")
        print(f"finished in this order: {ends.order}")
        assert ends.order == wanted
        check_once(nodes, known, wanted)


def await_turn(nodes: Sequence[Node], ends: Ends, wanted: Sequence[str], place: int) -> None:
    """Wait until ``place`` runs have ended and the next one is trained by all, AT_STEP steps far."""
    until(lambda: ends.look(nodes) >= place, 120.0, f"{wanted[place - 1]} does not end")
    trains_together(nodes)
    until(lambda: nodes[0].step() >= AT_STEP, 60.0, f"{wanted[place]} does not go on")


def all_ended(nodes: Sequence[Node], ends: Ends) -> bool:
    ends.look(nodes)
    return all(sum(card.state.ended for card in cards(node).values()) == 5 for node in nodes)


def check_once(nodes: Sequence[Node], known: dict[str, JobCard], wanted: Sequence[str]) -> None:
    """Assert that each job had one run, one after the other, and that its result is where it was dropped."""
    by_name = {node.name: node for node in nodes}
    ended_at = 0.0
    for job in wanted:
        dropper = by_name[DROPPED[job]]
        assert check_result(dropper, job)["run_id"] == known[job].run_id
        at = [line["at"] for line in dropper.journal(job) if "samples" in line]
        assert at[0] > ended_at, f"{job} began before the run before it had ended"
        ended_at = at[-1]
    for node in nodes:
        told = told_by_jobs(node)
        assert {(run["name"], run["run_id"], run["state"]) for run in told} == {
            (card.name, card.run_id, "finished") for card in known.values()
        }
        runs = {path.name for path in (node.state / "runs").iterdir()}
        assert runs <= {str(card.run_id) for card in known.values()}, "somebody trained a run of its own"
