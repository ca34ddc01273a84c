"""Code or numbers that fail on one node only, and on whichever node computes them."""

from __future__ import annotations

import re
import time
from functools import partial
from pathlib import Path

import pytest

from daisychain.core.jobs import JobState
from daisychain.core.node import TrainerState
from integration.agents.test_chain import LONG, ended_exactly, finished, sizes, went_on_within
from support.agent_node import Node
from support.agents import Chain, chain
from support.progress import go_on_without, trains_together
from support.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

ON_ONE_NODE = """

_loss = loss
HERE = Path.cwd().parents[2]  # the run's own folder lies in the node's: each has its own
FAULTS = ("raise", "nan loss", "nan gradient", "memory")


def loss(model, samples):
    found = _loss(model, samples)
    match next((fault for fault in FAULTS if (HERE / f"fault {fault}").exists()), ""):
        case "raise":
            raise KeyError("no such column")
        case "nan loss":
            return found * float("nan")
        case "nan gradient":
            return found + (0.0 * model.counts[samples].mean()).sqrt()
        case "memory":
            raise MemoryError
    return found
"""

SPOILT = """

_loss = loss
FROM_EPOCH, SPOILT = 3, 77


def loss(model, samples):
    if model.counts[SPOILT] >= FROM_EPOCH and (samples == SPOILT).any():
        raise ValueError(f"sample {SPOILT} is spoilt")
    return _loss(model, samples)
"""

WENT_ON_S = 1.0
"""From the fault to the next committed step of the others, at most. Their steps take some 60 ms."""


def spoilt_chain(agents: Chain, code: str, *names: str) -> list[Node]:
    """Start agents whose counting job ends with ``code``, the same on all, and wait until they train."""
    for name in names:
        file = agents.write_job(name, epochs=LONG) / "counting.py"
        file.write_text(file.read_text() + code)
    nodes = [agents.start(name, "--min-nodes", str(len(names)), wait=False) for name in names]
    for node in nodes:
        node.await_start()
    trains_together(nodes)
    return nodes


def fails_here(agents: Chain, node: Node, how: str) -> float:
    """Have the job's code fail on one node only; return the Unix seconds just before."""
    at = time.time()
    (agents.folder / node.name / f"fault {how}").touch()  # the job can see that it is there, no more
    return at


def stands_by(node: Node, *words: str) -> bool:
    """Whether a node says for people that the run failed there, and why."""
    return node.knows(
        lambda status: (
            status.view.trainer.state is TrainerState.FAILED
            and status.trainer_pid is None
            and all(word in status.view.standby for word in words)
        )
    )


@pytest.mark.parametrize(
    ("worker", "coordinator"),
    [
        pytest.param(
            ("raise", r"counting\.py:\d+: loss\(\) raised KeyError: 'no such column'"),
            ("nan gradient", "the gradient of counts is NaN or infinite in step"),
            id="an error, then a NaN gradient on the coordinator",
        ),
        pytest.param(
            ("memory", r"counting\.py:\d+: MemoryError in step .*granule or the global batch smaller"),
            ("nan loss", "the loss or its gradient is NaN or infinite in step"),
            id="want of memory, then a NaN loss on the coordinator",
        ),
    ],
)
def test_what_fails_on_one_node_is_computed_by_the_others(
    tmp_path: Path, worker: tuple[str, str], coordinator: tuple[str, str]
) -> None:
    """First on a worker, then on the coordinator: the last one finishes the job by itself, exactly."""
    with chain(tmp_path) as agents:
        nodes = spoilt_chain(agents, ON_ONE_NODE, "ada", "bob", "cem")
        leader = agents.leader()
        victim, last = (node for node in nodes if node is not leader)
        at = [fails_here(agents, victim, worker[0])]
        go_on_without([leader, last])
        until(partial(stands_by, victim), 5.0, f"{victim.name} does not stand by")
        at.append(fails_here(agents, leader, coordinator[0]))
        go_on_without([last])
        until(partial(stands_by, leader), 5.0, f"{leader.name} does not stand by")
        assert leader.leads(), "it needs no trainer for that"
        audit = ended_exactly(agents, [last], epochs=LONG)
        assert sizes(audit) == [3, 2, 1]
        for moment in at:
            went_on_within(last, moment, WENT_ON_S)
        for node, (_, reason) in ((victim, worker), (leader, coordinator)):
            until(partial(finished, node), 10.0, f"{node.name} goes on")
            log = next((node.state / "runs").glob("*/train.log")).read_text()
            assert re.search(reason, log), log
            assert not (node.jobs / "counting" / "result").exists()
        failures = agents.folder / leader.name / "log"
        assert re.search(coordinator[1], failures.read_text())


def test_a_sample_that_fails_on_two_nodes_fails_the_job_and_names_both(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        nodes = spoilt_chain(agents, SPOILT, "ada", "bob", "cem")
        agents.hurry_up()
        for node in nodes:
            until(lambda node=node: node.state_of("counting") is JobState.FAILED, 30.0, "the job goes on")  # type: ignore[misc]
        (reason,) = {card.reason for node in nodes for card in node.client.jobs() if card.name == "counting"}
        print(reason)
        told = re.fullmatch(
            r"on (\w+) and (\w+): counting\.py:(\d+): loss\(\) raised ValueError: sample 77 is spoilt\. .+",
            reason,
        )
        assert told is not None, reason
        assert {told[1], told[2]} < {"ada", "bob", "cem"}
        code = (nodes[0].jobs / "counting" / "counting.py").read_text().splitlines()
        assert "raise ValueError" in code[int(told[3]) - 1]
        for node in nodes:
            until(lambda node=node: node.trainer_pid is None, 10.0, "its trainer outlives the run")  # type: ignore[misc]
        logs = [(agents.folder / node.name / "log").read_text() for node in nodes]
        assert sum("failed here" in log for log in logs) == 2, "the third need not try"
