"""Nobody dies of a slow link: gradients fill its queues, and the chain goes on in the same world."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from daisychain.cli.client import AgentClient
from rig.chain import RigChain, rig_chain
from rig.lan import Lan, lan
from rig.node import RigNode
from rig.shape import Shape
from support.progress import trains_together
from support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.rig, pytest.mark.timeout(300)]

NAMES = ["ada", "bob", "cem"]
JOB = "wide"
CODE = '''
"""A million parameters and hardly any work: a step is its gradient's way over the link."""

import torch
from torch import nn


def model():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(512, 1024), nn.Tanh(), nn.Linear(1024, 512))


def dataset(split):
    if split == "train":
        return torch.randn(256, 512, generator=torch.Generator().manual_seed(11))


def loss(model, batch):
    return ((model(batch) - batch) ** 2).mean()


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=1e-3)
'''

CHEAP_ROUTER = 1_500_000
"""Bytes that a router keeps at most: 1000 full frames, which at 5 Mbit/s are 2.4 s."""


@pytest.fixture
def net() -> Iterator[Lan]:
    with lan(NAMES) as made:
        yield made


@pytest.fixture
def chain(net: Lan) -> Iterator[RigChain]:
    with rig_chain() as made:
        yield made


def write_job(jobs: Path) -> None:
    folder = jobs / JOB
    folder.mkdir(parents=True)
    (folder / "wide.py").write_text(CODE)
    (folder / "job.yaml").write_text(
        "kind: python\nfile: wide.py\nglobal_batch_size: 32\nepochs: 100000\nseed: 3\n"
    )


def begin(chain: RigChain, net: Lan, names: list[str]) -> list[RigNode]:
    """Start a node on each place and wait until all train the job in one world."""
    nodes = []
    for name in names:
        write_job(chain.prepare(name))
        nodes.append(chain.start(net.place(name), "--min-nodes", str(len(names))))
    for node in nodes:
        node.await_start()
    trains_together(nodes)
    return nodes


class Watch:
    """What the nodes hold of each other while somebody looks."""

    def __init__(self, nodes: list[RigNode]) -> None:
        self._nodes = nodes
        self.health: Counter[str] = Counter()
        self.silent_s: list[float] = []
        self.generations = {self._generation(node) for node in nodes}

    def look_for(self, seconds: float) -> None:
        """Look ten times a second."""
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            for node in self._nodes:
                status = AgentClient(node.state).status()
                self.health.update(peer.health for peer in status.view.peers)
                self.silent_s += [peer.silent_s for peer in status.view.peers]
                self.generations.add(self._generation(node))
            time.sleep(0.1)

    def story(self) -> str:
        silent = sorted(self.silent_s)
        return (
            f"{dict(self.health)}; silent for {statistics.median(silent):.2f} s at the median, "
            f"{silent[int(0.99 * len(silent))]:.2f} s at the 99th percentile, {silent[-1]:.2f} s at most; "
            f"worlds {sorted(self.generations)}"
        )

    @staticmethod
    def _generation(node: RigNode) -> str:
        world = AgentClient(node.state).status().view.world
        return "none" if world is None else str(world.generation)


def goes_on(net: Lan, nodes: list[RigNode], shape: Shape, seconds: float) -> Watch:
    """Let the nodes train over such links; assert that no world breaks and nobody dies."""
    watch = Watch(nodes)
    for node in nodes:
        net.shape(node.name, shape)
    before, began_at = min(node.step() for node in nodes), time.monotonic()
    watch.look_for(seconds)
    took_s = time.monotonic() - began_at
    steps = min(node.step() for node in nodes) - before
    print(f"{shape}: {steps} steps in {took_s:.0f} s; {watch.story()}")
    assert set(watch.health) <= {"alive", "suspect"}, watch.story()
    assert len(watch.generations) == 1, watch.story()
    for node in nodes:
        net.shape(node.name, Shape())
    until(lambda: min(node.step() for node in nodes) > before + steps, 60.0, "nothing is committed any more")
    assert steps > 0
    return watch


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(Shape(rate_mbit=10), id="10 Mbit/s"),
        pytest.param(Shape(rate_mbit=5, queue_bytes=CHEAP_ROUTER), id="5 Mbit/s and a queue of 2.4 s"),
    ],
)
def test_no_world_breaks_while_gradients_fill_a_slow_link(chain: RigChain, net: Lan, shape: Shape) -> None:
    goes_on(net, begin(chain, net, NAMES), shape, 20.0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("shape", "names"),
    [
        pytest.param(Shape(rate_mbit=10), NAMES, id="10 Mbit/s"),
        pytest.param(Shape(rate_mbit=10, queue_bytes=CHEAP_ROUTER), NAMES[:2], id="10 Mbit/s, a deep queue"),
        pytest.param(
            Shape(rate_mbit=10, delay_s=0.0125, loss=0.005), NAMES, id="10 Mbit/s, 50 ms, 1% on each path"
        ),
    ],
)
def test_no_world_breaks_in_two_minutes(chain: RigChain, net: Lan, shape: Shape, names: list[str]) -> None:
    nodes = begin(chain, net, names)
    watch = goes_on(net, nodes, shape, 120.0)
    assert watch.health["alive"] > 0.95 * sum(watch.health.values()), watch.story()


def test_a_silent_death_is_noticed_soon_on_a_fast_link_and_in_time_on_a_slow_one(
    chain: RigChain, net: Lan
) -> None:
    """The cable of one is pulled: first while links are fast, then while gradients fill them."""
    nodes = begin(chain, net, NAMES)
    victim = nodes[-1]
    others = nodes[:-1]
    for shape, bound_s in ((Shape(), 4.0), (Shape(rate_mbit=10), 12.0)):
        for node in nodes:
            net.shape(node.name, shape)
        trains_together(nodes, 90.0)
        net.cut(victim.name)
        took_s = until(
            lambda: all(node.world_size() == len(others) for node in others), 30.0, "nobody notices"
        )
        print(f"{shape}: noticed within {took_s:.2f} s")
        assert took_s < bound_s
        net.heal(victim.name)
        for node in nodes:
            net.shape(node.name, Shape())
        trains_together(nodes, 90.0)
