"""A look at the user's loss before anything is trained: what a chain could not sum is refused here.

The model's buffers are put back and its gradients dropped; the data's first samples are used.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from daisychain.errors import JobError
from daisychain.trainer.loaded import LossSum, Samples
from daisychain.trainer.samples import CountedBatch

PROBE_SAMPLES = 32
"""How many samples the loss is tried on: enough for classes and lengths to differ."""

MEAN_TOLERANCE = 1e-4
"""Largest relative difference between a loss and its parts that rounding explains; averaging the means of a
class-weighted loss is wrong by 1e-3 and more."""

Loss = Callable[[nn.Module, CountedBatch], LossSum]


def probe(model: nn.Module, loss: Loss, train: Samples, where: str, coupled: bool) -> None:
    """Raise `JobError` unless ``loss`` can be summed over parts of a batch.

    Tried are: a training step's forward and backward (sparse gradients, a loss without gradient, buffers
    that forward changes), and whether the losses of two parts of a batch make up the loss of the
    whole, in evaluation mode. ``coupled``: the user says they do not; the latter is left out.
    """
    count = min(PROBE_SAMPLES, len(train))
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    was_training = model.training
    try:
        model.train()
        _try_step(model, loss, train.batch(range(count), 0), where)
        _check_buffers(model, buffers, where)
        if not coupled and not _uses_batch_statistics(model):
            model.eval()
            _check_parts(model, loss, train, where)
    finally:
        model.zero_grad(set_to_none=True)
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                if name in buffers and buffer.shape == buffers[name].shape:
                    buffer.copy_(buffers[name])
        model.train(was_training)


def _try_step(model: nn.Module, loss: Loss, batch: CountedBatch, where: str) -> None:
    found = loss(model, batch)
    if not found.sum.requires_grad:
        raise JobError(
            f"{where}: loss",
            "the loss does not depend on the model",
            "Compute it from model(...) with gradients.",
        )
    try:
        found.sum.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise JobError(
            f"{where}: loss", f"backward failed: {error}", "Correct the loss or the model."
        ) from error
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and parameter.grad.is_sparse:
            raise JobError(
                f"{where}: model",
                f"{name} has a sparse gradient, which cannot be summed here",
                "Make it dense.",
            )


def _check_buffers(model: nn.Module, before: dict[str, torch.Tensor], where: str) -> None:
    """Refuse buffers that forward changes, but for batch norm's: nodes would drift apart in them."""
    known = {
        f"{prefix}.{name}" if prefix else name
        for prefix, module in model.named_modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm)
        for name, _ in module.named_buffers(recurse=False)
    }
    for name, buffer in model.named_buffers():
        changed = name not in before or buffer.shape != before[name].shape or not _equal(buffer, before[name])
        if changed and name not in known:
            raise JobError(
                f"{where}: model",
                f"forward changes the buffer {name}, which nodes cannot keep alike",
                "Compute it from the batch, or make it a parameter.",
            )


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def _uses_batch_statistics(model: nn.Module) -> bool:
    """Whether a batch norm keeps no running statistics, so that evaluation too looks at the whole batch."""
    return any(
        isinstance(module, nn.modules.batchnorm._BatchNorm) and not module.track_running_stats
        for module in model.modules()
    )


def _check_parts(model: nn.Module, loss: Loss, train: Samples, where: str) -> None:
    count = min(PROBE_SAMPLES, len(train))
    with torch.no_grad():
        whole = _numbers(loss(model, train.batch(range(count), 0)))
        for cut in sorted({1, count // 3, count - 2} & set(range(1, count))):
            first = _numbers(loss(model, train.batch(range(cut), 0)))
            second = _numbers(loss(model, train.batch(range(cut, count), 0)))
            for name, total, a, b in zip(("sum", "weight"), whole, first, second, strict=True):
                size = max(abs(total), abs(a), abs(b))
                if math.isfinite(size) and abs(a + b - total) > MEAN_TOLERANCE * size:
                    found = f"{cut} and {count - cut} samples its {name} is {a + b:.6g}, over all {total:.6g}"
                    raise _no_mean(where, found)


def _no_mean(where: str, found: str) -> JobError:
    return JobError(
        f"{where}: loss",
        f"the loss is no mean over the samples: over {found}",
        "If samples are weighted or masked, return (sum, weight); if the loss draws random numbers or"
        " compares the samples of a batch with each other, put 'needs_granules = True' in the file.",
    )


def _numbers(loss: LossSum) -> tuple[float, float]:
    return float(loss.sum), loss.weight
