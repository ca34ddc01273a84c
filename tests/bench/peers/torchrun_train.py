"""The benchmark's training under torchrun elastic and DDP; a line into its log for every committed step.

torchrun restarts every worker when the world changes, so each node keeps a checkpoint of its own and the
restarted world goes on from the newest one. Imports nothing of DaisyChain.
"""

from __future__ import annotations

import argparse
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from bench.peers.job_module import load
from bench.peers.step_log import StepWriter
from bench.steps import StepLine

MEET_S = 30.0
"""For the restarted workers to find each other: some import torch faster than others."""


def main() -> None:
    given = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    log, job = StepWriter(given.steps), load(given.job)
    net = job.Net()
    adam = torch.optim.Adam(net.parameters(), lr=1e-3)
    _, inputs, classes = job.samples()
    log.ready()
    dist.init_process_group("gloo", timeout=timedelta(seconds=MEET_S))
    group = dist.new_group(timeout=timedelta(seconds=given.timeout_s))
    world, size = f"{time.time():.3f}", dist.get_world_size()
    step = restore(given.checkpoint, net, adam)
    model = DistributedDataParallel(net, process_group=group)
    generator = torch.Generator().manual_seed(1000 * given.seed + step)
    batch_size = -(-job.BATCH // given.nodes)
    while True:
        began_at = time.time()
        adam.zero_grad()
        batch = torch.randint(job.SAMPLES, (batch_size,), generator=generator)
        torch.nn.functional.cross_entropy(model(inputs[batch]), classes[batch]).backward()  # type: ignore[no-untyped-call]
        adam.step()
        step += 1
        now = time.time()
        log.committed(StepLine(now, step, size, world, now - began_at))
        if step % given.checkpoint_steps == 0:
            save(given.checkpoint, step, net, adam)


def save(path: Path, step: int, net: torch.nn.Module, adam: torch.optim.Optimizer) -> None:
    scratch = path.with_suffix(".new")
    torch.save({"step": step, "net": net.state_dict(), "adam": adam.state_dict()}, scratch)
    scratch.replace(path)


def restore(path: Path, net: torch.nn.Module, adam: torch.optim.Optimizer) -> int:
    """Have all ranks hold the newest checkpoint that one of them has; return its step, 0 for none."""
    state: dict[str, Any] = torch.load(path, weights_only=True) if path.exists() else {"step": 0}
    steps: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(steps, state["step"])
    if max(steps) > 0:
        told = [state]
        dist.broadcast_object_list(told, src=steps.index(max(steps)))
        net.load_state_dict(told[0]["net"])
        adam.load_state_dict(told[0]["adam"])
    return int(max(steps))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", type=Path, required=True)
    parser.add_argument("--steps", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--checkpoint-steps", type=int, required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--timeout-s", type=float, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
