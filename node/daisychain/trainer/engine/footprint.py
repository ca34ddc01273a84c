"""What a job takes of memory whatever a node's share: the model, its gradients, its optimizer's state.

Counted before the first step, so that a model that does not fit is refused with both numbers and not ended by
the kernel. Activations are not in it: micro-batches are cut to fit the rest (`capacity.fit_memory`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from daisychain.core.sizes import in_words, too_big
from daisychain.errors import JobMemoryError
from daisychain.trainer.engine.faults import job_file
from daisychain.trainer.jobs.loaded import LoadedJob
from daisychain.trainer.jobs.model_size import GRADIENT_COPIES, TOO_BIG_REMEDY


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes that every node holds, in the memory of the device that it computes on.

    Attributes:
        model: parameters and buffers.
        gradients: of the trained parameters, twice: backward's own, and what the exchange sums or the
            optimizer works with.
        optimizer: what the optimizer keeps from its first step on; None when that cannot be told before.
        held: what of all this is allocated when the job has been loaded.
    """

    model: int
    gradients: int
    optimizer: int | None
    held: int

    @property
    def total(self) -> int:
        """All that is known of it."""
        return self.model + self.gradients + (self.optimizer or 0)

    @property
    def to_come(self) -> int:
        """What is not allocated yet when the job has been loaded."""
        return max(0, self.total - self.held)


def footprint(job: LoadedJob) -> Footprint:
    """Return what ``job`` takes; nothing of it is computed or allocated for that."""
    trained = [each for each in job.model.parameters() if each.requires_grad]
    model = size_of([*job.model.parameters(), *job.model.buffers()])
    held = model + size_of(_kept(job.optimizer))
    return Footprint(model, GRADIENT_COPIES * size_of(trained), optimizer_bytes(job.optimizer), held)


def optimizer_bytes(optimizer: torch.optim.Optimizer) -> int | None:
    """Return the bytes that ``optimizer`` will keep between steps; None when only a real step would tell.

    A copy of it takes one step over tensors of two numbers a dimension: what it keeps then is of a tensor's
    own shape, or a single number, whatever its size; what is of another shape (Adafactor) cannot be told.
    Only torch's own optimizers can be copied for sure. (Tensors without memory, on torch's device "meta",
    would do as well, but their first operation imports a computer algebra system: a second of every start.)
    """
    if optimizer.state:  # Adagrad makes its own at once
        return size_of(_kept(optimizer))
    if not type(optimizer).__module__.startswith("torch.optim"):
        return None
    twins: dict[int, torch.Tensor] = {}
    sizes: dict[int, int] = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            shape = [min(size, 2) for size in parameter.shape]
            twin = torch.zeros(shape, dtype=parameter.dtype, requires_grad=parameter.requires_grad)
            if parameter.requires_grad:
                twin.grad = torch.zeros_like(twin)
            twins[id(parameter)] = twin
            sizes[id(twin)] = parameter.numel()
    try:
        # With the twins in its memo, deepcopy puts each in the place of the parameter that it was made of.
        tried = copy.deepcopy(optimizer, dict(twins))
        for group in tried.param_groups:
            group["fused"] = False  # keeps the same, and wants numbers
        tried.step()
    except Exception:  # a step over zeros is not what the optimizer was made for; whatever it raises
        return None
    found = 0
    for twin, state in tried.state.items():
        for value in state.values():
            if not isinstance(value, torch.Tensor):
                continue
            if value.shape != twin.shape and value.numel() != 1:
                return None
            count = sizes[id(twin)] if value.shape == twin.shape else 1
            found += count * value.element_size()
    return found


def _kept(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    values = (value for state in optimizer.state.values() for value in state.values())
    return [value for value in values if isinstance(value, torch.Tensor)]


def refuse_too_big(job: LoadedJob, found: Footprint, free: int) -> None:
    """Raise `JobMemoryError` with both numbers when what is to come of ``found`` exceeds ``free`` bytes.

    Caught where the job is loaded: the node then stands by with the reason, and the others train.
    """
    why = too_big(found.total, free + found.held, at_least=found.optimizer is None)
    if not why:
        return
    parts = [f"model {in_words(found.model)}", f"gradients {in_words(found.gradients)}"]
    if found.optimizer is not None:
        parts.append(f"{type(job.optimizer).__name__} {in_words(found.optimizer)}")
    raise JobMemoryError(job_file(job), f"{why} ({', '.join(parts)})", TOO_BIG_REMEDY)


def size_of(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes of ``tensors``, each counted once."""
    return sum({id(each): each.numel() * each.element_size() for each in tensors}.values())
