"""What a job must be so that its gradient is exact on any chain: tried on its own model and data.

`check` refuses by name what cannot be trained exactly, and turns granules on where forward draws random
numbers or the loss couples the samples of a batch. It leaves model, optimizer and generators as they were.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from daisychain.errors import JobError
from daisychain.trainer.engine import sampler
from daisychain.trainer.engine.buffers import FixedBuffers, restored
from daisychain.trainer.engine.faults import job_file, user_code
from daisychain.trainer.engine.modes import modes, restore_modes
from daisychain.trainer.engine.norms import Norms
from daisychain.trainer.engine.randomness import Drawn, restored_generators, seed_all
from daisychain.trainer.jobs.loaded import LoadedJob, LossSum

PROBE = 96
"""Samples that the probes look at, taken from the shuffled order."""

TOLERANCE = {torch.float64: 1e-9}
"""How far, relative to the summed magnitudes, the parts' losses may be from the whole's; else 1e-4."""


def check(job: LoadedJob) -> None:
    """Raise `JobError` for a job that cannot be trained exactly; decide about granules."""
    check_optimizer(job)
    check_batch_norm(job)
    check_forward(job)
    check_mean(job)


def check_optimizer(job: LoadedJob) -> None:
    """Refuse closures, and tensors that are not the model's parameters."""
    file, name = job_file(job), type(job.optimizer).__name__
    closure = inspect.signature(job.optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise JobError(
            file,
            f"{name} evaluates the loss several times a step (a closure), which a chain cannot do",
            "Take SGD, Adam, AdamW or another optimizer whose step() needs no closure",
        )
    own = {id(parameter) for parameter in job.model.parameters()}
    for group in job.optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad and id(parameter) not in own:
                raise JobError(
                    file,
                    f"{name} holds a tensor of shape {tuple(parameter.shape)} that the model does not",
                    "Make it an nn.Parameter of the module that model() returns",
                )
    if not any(parameter.requires_grad for parameter in job.model.parameters()):
        raise JobError(
            file, "the model has no parameter to train", "Leave requires_grad on where it may learn"
        )


def check_batch_norm(job: LoadedJob) -> None:
    """Refuse batch norm where every granule would be a single sample."""
    if not any(isinstance(module, _BatchNorm) for module in job.model.modules()):
        return
    job.needs_granules = True
    remedy = "Batch norm needs at least two, better 16 or more, or use GroupNorm"
    if len(job.train) == 1:
        raise JobError(job_file(job), "batch norm cannot be trained on a single sample", remedy)
    for key, value in (("granule", job.spec.granule), ("global_batch_size", job.spec.global_batch_size)):
        if value == 1:
            raise JobError(f"job.yaml: {key}", "batch norm cannot be trained on 1 sample at a time", remedy)


def check_forward(job: LoadedJob) -> None:
    """Run one forward in training mode: refuse changed buffers, notice random numbers."""
    norms = Norms(job.model, job_file(job))
    fixed = FixedBuffers(job.model, norms.names(), job_file(job))
    indices = _probe(job, job.spec.granule)
    with restored_generators(), restored(job.model), user_code(job, "in a first forward pass"):
        batch = job.train.batch(indices, 0)
        seed_all(0)
        drawn = Drawn()
        with (
            torch.no_grad(),
            fixed.unchanged(),
            norms.collecting(norms.rows(1), 0, len(indices)),
        ):
            _loss(job, batch)
        if drawn.anything():
            job.needs_granules = True


def check_mean(job: LoadedJob) -> None:
    """Refuse a loss whose parts do not add up to the whole; a loss that couples samples gets granules.

    For groups A, B of samples, in evaluation mode: sum(A and B) = sum(A) + sum(B). A weighted mean given
    as a plain one (class weights, a mask) fails that, though there are weights by which mean(A and B) is the
    mean of mean(A) and mean(B); there are none for a loss that compares the samples with one another.
    """
    groups = [part for part in _thirds(_probe(job, PROBE)) if part]
    couples = any(
        isinstance(module, _BatchNorm) and module.running_mean is None for module in job.model.modules()
    )
    if len(groups) < 3 or couples:  # batch statistics in evaluation too: nothing would add up
        return
    kept = modes(job.model)
    try:
        with restored_generators(), restored(job.model), torch.no_grad(), user_code(job, "in a first loss"):
            job.model.eval()
            single = [_loss_of(job, group) for group in groups]
            pairs = {(a, b): _loss_of(job, [*groups[a], *groups[b]]) for a, b in ((0, 1), (1, 2), (0, 2))}
    finally:
        restore_modes(kept)
    if all(_adds_up(single[a], single[b], whole) for (a, b), whole in pairs.items()):
        return
    if _is_weighted_mean(single, pairs):
        whole, parts = pairs[0, 1], single[0].sum + single[1].sum
        samples, weight = len(groups[0]) + len(groups[1]), single[0].weight + single[1].weight
        raise JobError(
            job_file(job),
            f"the loss of {samples} samples is {whole.sum.item() / whole.weight:.6g}, but its two parts "
            f"give {parts.item() / weight:.6g}: it is no mean over samples",
            "Return (sum, weight) from loss(): the sum over the samples, and the sum of their weights",
        )
    job.needs_granules = True
    job.notes += ("the loss compares samples with one another: each granule is computed by itself",)


def _probe(job: LoadedJob, most: int) -> list[int]:
    found: list[int] = sampler.order(job.spec.seed, 0, len(job.train))[:most].tolist()
    return found


def _thirds(indices: Sequence[int]) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    sixth = len(indices) // 6  # unequal on purpose: equal ones can hide a wrong weight
    return indices[:sixth], indices[sixth : 3 * sixth], indices[3 * sixth :]


def _loss_of(job: LoadedJob, indices: Sequence[int]) -> LossSum:
    return _loss(job, job.train.batch(indices, 0))


def _loss(job: LoadedJob, batch: object) -> LossSum:
    loss = job.loss(job.model, batch)
    if loss.sum.dim() != 0:
        raise JobError(
            job_file(job),
            f"loss() gave a tensor of shape {tuple(loss.sum.shape)}",
            "Return one number: a mean over the samples, or (sum, weight)",
        )
    return loss


def _adds_up(a: LossSum, b: LossSum, whole: LossSum) -> bool:
    x, y, total = a.sum.item(), b.sum.item(), whole.sum.item()
    if not all(map(math.isfinite, (x, y, total))):
        return True  # told as NaN, with the step, when it is trained
    tolerance = TOLERANCE.get(whole.sum.dtype, 1e-4)
    weight = a.weight + b.weight
    return (
        abs(total - x - y) <= tolerance * (abs(x) + abs(y) + 1e-12)
        and abs(whole.weight - weight) <= tolerance * abs(weight)
    )  # fmt: skip


def _is_weighted_mean(single: Sequence[LossSum], pairs: dict[tuple[int, int], LossSum]) -> bool:
    means = [each.sum.item() / each.weight for each in single]
    ratios = {}
    for (a, b), whole in pairs.items():
        mean = whole.sum.item() / whole.weight
        if abs(mean - means[b]) <= 1e-6 * abs(mean):
            return True  # too close together to tell: the stricter answer
        ratios[a, b] = (means[a] - mean) / (mean - means[b])  # weight of b over weight of a
    if any(ratio <= 0 for ratio in ratios.values()):
        return False
    return math.isclose(ratios[0, 1] * ratios[1, 2], ratios[0, 2], rel_tol=0.05)
