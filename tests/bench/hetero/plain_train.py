"""The loop that a person would write: plain PyTorch, and under torchrun the same with DDP.

It trains the very file that DaisyChain trains. ``--share``: samples that this process computes of each step,
``--batch``: of all of them. ``--find-batch S``: print the batch whose steps take S seconds, and end. Imports
nothing of DaisyChain.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bench.peers.job_module import load
from bench.peers.step_log import StepWriter
from bench.steps import StepLine

TOLD_EVERY_S = 0.05
"""A line for each step would cost a loop of 1 ms steps one of a hundred."""

GLOO_TIMEOUT_S = 3600.0
"""It stands still while others have their turn."""

TRIES, BATCH_STEP = 40, 32


def main() -> None:
    given = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    job = load(given.job)
    if given.find_batch:
        print(find_batch(job, given.find_batch))
        return
    log = StepWriter(given.steps)
    rank, size, scale = 0, 1, 1.0
    net: nn.Module = job.model()
    optimizer = job.optimizer(net.parameters())
    model = net
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("gloo", timeout=timedelta(seconds=GLOO_TIMEOUT_S))
        rank, size = dist.get_rank(), dist.get_world_size()
        model = DistributedDataParallel(net)
        scale = scale_of(size, given.share, given.batch)
    data = job.dataset("train")
    log.ready()
    told_at, began_at = 0.0, time.time()
    for step, batch in enumerate(batches(data, given.share, given.seed + rank), 1):
        optimizer.zero_grad()
        loss = job.loss(model, batch)
        (loss if scale == 1.0 else loss * scale).backward()
        optimizer.step()
        now = time.time()
        if now - told_at >= TOLD_EVERY_S:
            log.committed(StepLine(now, step, size, "plain", now - began_at))
            told_at = now
        began_at = now


def scale_of(ranks: int, share: int, batch: int) -> float:
    """Return the factor of a rank's loss with which DDP's mean over ranks is the mean over the batch."""
    return ranks * share / batch


def batches(data: tuple[torch.Tensor, ...], share: int, seed: int) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield batches for ever, each epoch in an order of its own."""
    generator = torch.Generator().manual_seed(seed)
    samples = len(data[0])
    while True:
        order = torch.randperm(samples, generator=generator)
        for start in range(0, samples - share + 1, share):
            chosen = order[start : start + share]
            yield tuple(part[chosen] for part in data)


def find_batch(job: ModuleType, step_s: float) -> int:
    """Return the batch, a multiple of BATCH_STEP, whose steps take ``step_s`` or a little more here."""
    net = job.model()
    optimizer = job.optimizer(net.parameters())
    data = job.dataset("train")

    def takes(batch: int) -> float:
        return median_s(lambda each: train(job, net, optimizer, each), batches(data, batch, 1))

    low, high = BATCH_STEP, BATCH_STEP
    while takes(high) < step_s and 2 * high <= len(data[0]):
        low, high = high, 2 * high
    while high - low > BATCH_STEP:
        middle = (low + high) // (2 * BATCH_STEP) * BATCH_STEP
        low, high = (middle, high) if takes(middle) < step_s else (low, middle)
    return high


def train(
    job: ModuleType, net: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[torch.Tensor, ...]
) -> None:
    optimizer.zero_grad()
    job.loss(net, batch).backward()
    optimizer.step()


def median_s(
    step: Callable[[tuple[torch.Tensor, ...]], None], data: Iterator[tuple[torch.Tensor, ...]]
) -> float:
    took_s = []
    for _ in range(TRIES):
        began = time.perf_counter()
        step(next(data))
        took_s.append(time.perf_counter() - began)
    return statistics.median(took_s)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", type=Path, required=True)
    parser.add_argument("--steps", type=Path)
    parser.add_argument("--share", type=int, default=0)
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--find-batch", type=float, default=0.0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
