"""A large job moves over a real link: cut in the middle, it goes on there; beside training it is gentle."""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from daisychain.core.jobs import JobState
from daisychain.core.manifest import CHUNK_BYTES
from daisychain.runtime.agent_status import FetchView
from rig.chain import RigChain, rig_chain
from rig.lan import Lan, lan
from rig.node import RigNode
from rig.shape import Shape
from rig.test_slow_links import write_job as write_wide_job
from support.progress import trains_together
from support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.rig, pytest.mark.long, pytest.mark.timeout(400)]

NAMES = ["ada", "bob"]
JOB = "heavy"
MB = 1_000_000
SIZE_BYTES = 200 * MB
CODE = '''
"""A small network on rows of a large file."""

from pathlib import Path

import numpy as np
import torch
from torch import nn


def model():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16))


def dataset(split):
    if split == "train":
        rows = np.load(Path(__file__).parent / "rows.npy", mmap_mode="r")
        return torch.from_numpy(np.array(rows[:: len(rows) // 2000]))


def loss(model, batch):
    return ((model(batch) - batch) ** 2).mean()


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=1e-3)
'''

OVERHEAD = 1.06
"""Bytes on the wire for one of a bundle: frames, TLS and heartbeats."""

IN_FLIGHT_BYTES = 8 * CHUNK_BYTES
"""What may be under way when a link is cut, and be asked for again."""


@pytest.fixture
def net() -> Iterator[Lan]:
    with lan(NAMES) as made:
        yield made


@pytest.fixture
def chain(net: Lan) -> Iterator[RigChain]:
    with rig_chain() as made:
        yield made


def drop_job(jobs: Path, size_bytes: int) -> Path:
    """Drop a job with a table of random rows of about this size, renamed when it is whole."""
    folder = jobs / f"{JOB}.part"
    folder.mkdir(parents=True)
    rows = np.random.default_rng(7).standard_normal((size_bytes // 64, 16), dtype=np.float32)
    np.save(folder / "rows.npy", rows)
    (folder / "heavy.py").write_text(CODE)
    (folder / "job.yaml").write_text(
        "kind: python\nfile: heavy.py\nglobal_batch_size: 100\nepochs: 20\nseed: 3\n"
    )
    return folder.rename(jobs / JOB)


def start(chain: RigChain, net: Lan) -> list[RigNode]:
    """Start both nodes and wait until they have met."""
    nodes = [chain.start(net.place(name), "--min-nodes", "2") for name in NAMES]
    for node in nodes:
        node.await_start()
    until(lambda: all(peers(node) == 1 for node in nodes), 30.0, "they do not meet")
    return nodes


def peers(node: RigNode) -> int:
    status = node.status()
    return 0 if status is None else sum(peer.health == "alive" for peer in status.view.peers)


def fetching(node: RigNode) -> FetchView | None:
    """Return how far the node's fetch of the job is; None when there is none, or its size is not known."""
    status = node.status()
    found = [] if status is None else [it for it in status.fetches if it.name == JOB and it.part == "job"]
    return found[0] if found and found[0].size_bytes else None


def done_bytes(node: RigNode) -> int:
    view = fetching(node)
    return 0 if view is None else view.done_bytes


def received_bytes(net: Lan, name: str) -> int:
    """Return what a machine has received on its cable."""
    command = ["ip", "-n", net.place(name).namespace, "-s", "-j", "link", "show", "eth0"]
    shown = subprocess.run(command, capture_output=True, check=True, timeout=20).stdout
    return int(json.loads(shown)[0]["stats64"]["rx"]["bytes"])


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def test_a_cut_in_the_middle_costs_no_verified_chunk_and_both_train(chain: RigChain, net: Lan) -> None:
    ada, bob = start(chain, net)
    for name in NAMES:
        net.shape(name, Shape(rate_mbit=150))
    began_bytes = received_bytes(net, "bob")
    dropped = drop_job(ada.jobs, SIZE_BYTES)
    size_bytes = sum(path.stat().st_size for path in dropped.iterdir())
    until(lambda: done_bytes(bob) > 0.3 * size_bytes, 90.0, "bob fetches no third of it")
    net.cut("bob")
    until(lambda: peers(bob) == 0 and fetching(bob) is None, 60.0, "bob does not notice the cut")
    cut_bytes = received_bytes(net, "bob")
    staged = sum(path.stat().st_blocks * 512 for path in (bob.state / "incoming").rglob("*"))
    assert 0.3 * size_bytes <= staged < 0.9 * size_bytes, f"{staged} bytes are on the disk"
    assert not (bob.jobs / JOB).exists(), "a folder that is not whole is no job"

    net.heal("bob")
    until(lambda: fetching(bob) is not None, 60.0, "it is not fetched again")
    kept = done_bytes(bob)
    assert kept >= 0.3 * size_bytes, f"of what was verified only {kept} bytes are kept"
    until((bob.jobs / JOB / "job.yaml").exists, 120.0, "it is never whole")
    before = cut_bytes - began_bytes
    after = received_bytes(net, "bob") - cut_bytes
    print(
        f"{size_bytes / MB:.0f} MB: {before / MB:.1f} MB received before the cut, {kept / MB:.1f} MB kept, "
        f"{after / MB:.1f} MB received after it"
    )
    assert after <= OVERHEAD * (size_bytes - kept) + IN_FLIGHT_BYTES, "what was verified was fetched again"
    assert before + after <= OVERHEAD * (size_bytes + IN_FLIGHT_BYTES)
    for name in ("rows.npy", "heavy.py", "job.yaml"):
        assert digest(bob.jobs / JOB / name) == digest(dropped / name)

    for node in (ada, bob):
        until(partial(ended_well, node), 120.0, f"{node.name} does not finish")
    worlds = ada.summary(JOB)["audit"]["worlds"]
    assert worlds[-1]["size"] == 2, worlds
    assert len({digest(node.jobs / JOB / "result" / "model.safetensors") for node in (ada, bob)}) == 1
    assert ada.summary(JOB)["run_id"] == bob.summary(JOB)["run_id"]


def ended_well(node: RigNode) -> bool:
    state = node.state_of(JOB)
    assert state not in {JobState.FAILED, JobState.CANCELLED, JobState.WITHDRAWN}, state
    return state is JobState.FINISHED and (node.jobs / JOB / "result" / "summary.json").exists()


LINK_BYTES_PER_S = 100e6 / 8
LOOK_S = 20.0


@dataclass(frozen=True, slots=True)
class Window:
    """What happened in some seconds."""

    steps_per_s: float
    fetched_bytes_per_s: float


def look(net: Lan, nodes: Sequence[RigNode], seconds: float) -> Window:
    """Watch training and fetching for a while."""
    step, done = min(node.step() for node in nodes), done_bytes(nodes[1])
    began_at = time.monotonic()
    until(lambda: time.monotonic() - began_at >= seconds, seconds + 5.0, "time stands still")
    took_s = time.monotonic() - began_at
    steps = min(node.step() for node in nodes) - step
    return Window(steps / took_s, max(0, done_bytes(nodes[1]) - done) / took_s)


def test_fetching_beside_training_takes_at_most_a_fifth_of_the_link(chain: RigChain, net: Lan) -> None:
    """A step that is all communication: the worst case for whatever moves beside it."""
    for name in NAMES:
        write_wide_job(chain.prepare(name))
    nodes = start(chain, net)
    trains_together(nodes)
    for name in NAMES:
        net.shape(name, Shape(rate_mbit=100))
    look(net, nodes, 5.0)
    without = look(net, nodes, LOOK_S)
    drop_job(nodes[0].jobs, 100 * MB)
    until(lambda: done_bytes(nodes[1]) > 2 * CHUNK_BYTES, 60.0, "bob does not fetch beside the training")
    beside = look(net, nodes, LOOK_S)
    assert fetching(nodes[1]) is not None, "it was over before the look was"
    share = beside.fetched_bytes_per_s / LINK_BYTES_PER_S
    slower = without.steps_per_s / beside.steps_per_s
    print(
        f"on 100 Mbit/s: {without.steps_per_s:.2f} steps/s alone, {beside.steps_per_s:.2f} beside a fetch "
        f"of {beside.fetched_bytes_per_s / MB:.2f} MB/s ({share:.1%} of the link): {slower:.2f} times as long"
    )
    assert 0.05 <= share <= 0.2
    assert slower <= 1.2
