"""How this machine rounds, in a few digits: equal on machines that give the same bits for this very job.

Machines differ in instruction sets (fused multiply-adds, wider vectors), libraries and GPUs. What that does
depends on the model, so the job itself is tried: one granule, forward and backward, then the optimizer.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence

import torch

from daisychain.trainer.engine.compute import Computed
from daisychain.trainer.engine.engine import Engine
from daisychain.trainer.engine.faults import user_code
from daisychain.trainer.engine.gradients import clear
from daisychain.trainer.engine.randomness import restored_generators

OPTIMIZER_STEPS = 3
"""The first step of many optimizers has no history yet, and rounds in fewer places."""


def rounding_digest(engine: Engine) -> str:
    """Return 16 hex digits: equal on machines that round alike, while the model is as it was loaded.

    Covers the loss, the gradients and the batch-norm statistics of the run's first granule, the norm of the
    gradient where the job clips by it, and what some steps of the optimizer make of that. Leaves model,
    optimizer and generators as they were. Raises `JobError` when the job's code fails.
    """
    position = engine.timeline.position(0)
    units = 1 if engine.job.needs_granules else min(engine.job.spec.granule, position.samples)
    digest = hashlib.blake2b(digest_size=8)
    with restored_generators(), user_code(engine.job, "while its rounding was tried"):
        try:
            computed = engine.computer.compute(position, range(units))
            for tensor in [*_of_granule(engine, computed), *_of_optimizer(engine)]:
                digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        finally:
            clear(engine.job.model.parameters())
    return digest.hexdigest()


def _of_granule(engine: Engine, computed: Computed) -> list[torch.Tensor]:
    gradients = [each.grad for each in engine.computer.layout.parameters if each.grad is not None]
    found = [torch.tensor(computed.sums.numbers()[3:6]), computed.rows, *gradients]
    if engine.job.spec.clip_grad_norm is not None:
        found.append(torch.nn.utils.get_total_norm(gradients))
    return found


def _of_optimizer(engine: Engine) -> Sequence[torch.Tensor]:
    """Return what a copy of the optimizer makes of copies of the parameters and their gradients.

    Only torch's own optimizers can be copied for sure; of others the gradients must do.
    """
    optimizer = engine.job.optimizer
    if not type(optimizer).__module__.startswith("torch.optim"):
        return []
    copies: dict[int, torch.Tensor] = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            copied = parameter.detach().clone().requires_grad_(parameter.requires_grad)
            copied.grad = None if parameter.grad is None else parameter.grad.detach().clone()
            copies[id(parameter)] = copied
    # With the copies in its memo, deepcopy puts each in the place of the parameter that it was made of.
    tried = copy.deepcopy(optimizer, dict(copies))
    for _ in range(OPTIMIZER_STEPS):
        tried.step()
    kept = [value for state in tried.state.values() for value in state.values()]
    return [*copies.values(), *(value for value in kept if isinstance(value, torch.Tensor))]
