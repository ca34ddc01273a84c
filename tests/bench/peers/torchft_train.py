"""The benchmark's training under torchft, on one node; a line into its log for every committed step.

Run by the interpreter of `.venv-bench`: it imports nothing of DaisyChain.
"""

from __future__ import annotations

import argparse
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torchft import (  # type: ignore[import-not-found]  # of the benchmark's own environment
    DistributedDataParallel,
    Manager,
    Optimizer,
    ProcessGroupGloo,
)

from bench.peers.job_module import load
from bench.peers.step_log import StepWriter
from bench.steps import StepLine


def main() -> None:
    given = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    log, job = StepWriter(given.steps), load(given.job)
    net = job.Net()
    adam = torch.optim.Adam(net.parameters(), lr=1e-3)
    _, inputs, classes = job.samples()
    manager = make_manager(given, net, adam)
    model = DistributedDataParallel(manager, net)
    optimizer = Optimizer(manager, adam)
    generator = torch.Generator().manual_seed(given.seed)
    batch_size = -(-job.BATCH // given.nodes)
    log.ready()
    while True:
        began_at, before = time.time(), manager.current_step()
        optimizer.zero_grad()
        batch = torch.randint(job.SAMPLES, (batch_size,), generator=generator)
        torch.nn.functional.cross_entropy(model(inputs[batch]), classes[batch]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if (step := manager.current_step()) > before:
            now, world = time.time(), str(manager._quorum_id)
            log.committed(StepLine(now, step, manager.num_participants(), world, now - began_at))


def make_manager(given: argparse.Namespace, net: torch.nn.Module, adam: torch.optim.Optimizer) -> Manager:
    """Return the manager of a replica group of one process, with a store of its own."""

    def take(state: dict[str, Any]) -> None:
        net.load_state_dict(state["net"])
        adam.load_state_dict(state["adam"])

    store = dist.TCPStore(  # type: ignore[attr-defined]
        given.address, 0, is_master=True, wait_for_workers=False
    )
    timeout = timedelta(seconds=given.timeout_s)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timeout),
        load_state_dict=take,
        state_dict=lambda: {"net": net.state_dict(), "adam": adam.state_dict()},
        min_replica_size=1,
        timeout=timeout,
        quorum_timeout=timedelta(seconds=given.quorum_timeout_s),
        connect_timeout=timeout,
        rank=0,
        world_size=1,
        store_addr=given.address,
        store_port=store.port,
        lighthouse_addr=given.lighthouse,
        replica_id=given.name,
        hostname=given.address,
        heartbeat_interval=timedelta(milliseconds=given.heartbeat_ms),
    )
    manager.bench_store = store  # lives as long as the manager does
    return manager


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", type=Path, required=True)
    parser.add_argument("--steps", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--address", required=True)
    parser.add_argument("--lighthouse", required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--timeout-s", type=float, required=True)
    parser.add_argument("--quorum-timeout-s", type=float, required=True)
    parser.add_argument("--heartbeat-ms", type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
