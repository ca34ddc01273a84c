"""How large a model would be that memory did not suffice to make."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from daisychain.core.sizes import too_big
from daisychain.errors import JobMemoryError
from daisychain.trainer.jobs.user_code import wants_memory

T = TypeVar("T")

GRADIENT_COPIES = 2
"""Of each gradient: backward's own, and what the exchange sums or the optimizer works with."""

TOO_BIG_REMEDY = "Make the model smaller, or train it on machines with more memory"


def made(where: str, make: Callable[[], T], dtype: torch.dtype, free: int) -> T:
    """Return ``make()``: a model. ``free``: bytes that are free before.

    Where memory does not suffice it is made once more, of tensors that have a shape and no memory, and
    `JobMemoryError` tells both numbers. When that does not work (code that reads numbers), or tells of
    no model that is too big, the want of memory is raised as it came.
    """
    try:
        return make()
    except Exception as error:
        told = _unmade(where, make, dtype, free) if wants_memory(error) else None
        if told is None:
            raise
        raise told from None


def _unmade(where: str, make: Callable[[], object], dtype: torch.dtype, free: int) -> JobMemoryError | None:
    try:
        with torch.device("meta"):
            model = make()
    except Exception:  # the job's own code, in a way that it was not written for; the first error is told
        return None
    if not isinstance(model, nn.Module):
        return None
    tensors = [*model.parameters(), *model.buffers()]
    held = sum(each.numel() * _item_bytes(each, dtype) for each in tensors)
    trained = sum(
        each.numel() * _item_bytes(each, dtype) for each in model.parameters() if each.requires_grad
    )
    why = too_big(held + GRADIENT_COPIES * trained, free, at_least=True)
    return JobMemoryError(where, why, TOO_BIG_REMEDY) if why else None


def _item_bytes(tensor: torch.Tensor, dtype: torch.dtype) -> int:
    return dtype.itemsize if tensor.is_floating_point() else tensor.element_size()
