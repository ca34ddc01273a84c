"""The gradient on its way: flat buckets, filled as backward ends with them, summed over the ranks.

Buckets hold the parameters in reverse order (backward reaches the last layer first), one dtype each, in host
memory whatever the model's device, so nodes with and without a GPU share one world. Every rank starts the
same sums in the same order, while backward of its last piece still runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from daisychain.errors import JobError
from daisychain.trainer.engine.exchange import Exchange, Pending

BUCKET_BYTES = 4 << 20
"""Size of a bucket: large enough to use a link well, small enough to leave while backward runs."""

INTEGERS = {torch.float64: torch.int64}
"""Fixed-point type of a parameter's dtype; int32 where none is named."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Consecutive slots of one dtype.

    Attributes:
        dtype: of the gradients in it.
        size: elements.
        members: the parameters' numbers, in the order of their slots.
    """

    dtype: torch.dtype
    size: int
    members: tuple[int, ...]


class Layout:
    """Which trained parameter lies where in which bucket: the same on every rank.

    Tied weights are one parameter; those without ``requires_grad`` have no slot.
    """

    def __init__(self, model: nn.Module, file: str, bucket_bytes: int = BUCKET_BYTES) -> None:
        self.file = file
        named = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
        self.names = tuple(name for name, _ in named)
        self.parameters = tuple(parameter for _, parameter in named)
        self.buckets = self._cut(bucket_bytes)
        self.bucket_of = [0] * len(self.parameters)
        for number, bucket in enumerate(self.buckets):
            for member in bucket.members:
                self.bucket_of[member] = number

    def _cut(self, bucket_bytes: int) -> tuple[Bucket, ...]:
        buckets: list[Bucket] = []
        members: list[int] = []
        size = 0
        for index in reversed(range(len(self.parameters))):
            parameter = self.parameters[index]
            if members:
                dtype = self.parameters[members[0]].dtype
                full = (size + parameter.numel()) * dtype.itemsize > bucket_bytes
                if full or dtype != parameter.dtype:
                    buckets.append(Bucket(dtype, size, tuple(members)))
                    members, size = [], 0
            members.append(index)
            size += parameter.numel()
        if members:
            buckets.append(Bucket(self.parameters[members[0]].dtype, size, tuple(members)))
        return tuple(buckets)

    def refuse_sparse(self, index: int) -> None:
        """Raise `JobError` when backward left parameter ``index`` a sparse gradient."""
        gradient = self.parameters[index].grad
        if gradient is not None and gradient.layout is not torch.strided:
            raise JobError(
                self.file,
                f"the gradient of {self.names[index]} is sparse, which a chain does not sum",
                "Use Embedding(sparse=False)",
            )

    @property
    def elements(self) -> int:
        """The number of trained numbers."""
        return sum(bucket.size for bucket in self.buckets)


class Flats:
    """Memory for one gradient.

    Attributes:
        tensors: one flat tensor for each bucket.
        slots: one shaped view for each parameter, in the parameters' order.
    """

    def __init__(self, layout: Layout, integers: bool = False) -> None:
        self.tensors: list[torch.Tensor] = []
        views: dict[int, torch.Tensor] = {}
        for bucket in layout.buckets:
            dtype = INTEGERS.get(bucket.dtype, torch.int32) if integers else bucket.dtype
            flat = torch.zeros(bucket.size, dtype=dtype)
            start = 0
            for member in bucket.members:
                parameter = layout.parameters[member]
                views[member] = flat[start : start + parameter.numel()].view(parameter.shape)
                start += parameter.numel()
            self.tensors.append(flat)
        self.slots = [views[index] for index in range(len(layout.parameters))]

    def zero(self) -> None:
        """Make every slot zero."""
        for flat in self.tensors:
            flat.zero_()


class Gathering:
    """One step's gradient being filled into buckets and summed.

    `ready` is called from backward of the last piece, `send_rest` after it, `wait` last. A `WorldError`
    leaves the buckets partly summed: they are dropped with this object.
    """

    def __init__(self, layout: Layout, flats: Flats, exchange: Exchange) -> None:
        self._layout, self._flats, self._exchange = layout, flats, exchange
        self._missing = [len(bucket.members) for bucket in layout.buckets]
        self._seen = [False] * len(layout.parameters)
        self._next = 0
        self._pending: list[Pending] = []

    def ready(self, index: int) -> None:
        """Take note that backward ended with parameter ``index``; send the buckets that are complete."""
        self._layout.refuse_sparse(index)
        if self._seen[index]:
            raise JobError(
                self._layout.file,
                f"backward adds to the gradient of {self._layout.names[index]} more than once in one pass",
                "Use torch.utils.checkpoint with use_reentrant=False",
            )
        self._seen[index] = True
        self._missing[self._layout.bucket_of[index]] -= 1
        while self._next < len(self._missing) and self._missing[self._next] == 0:
            self._send()

    def send_rest(self) -> None:
        """Send what is left, zeros where backward did not come by."""
        while self._next < len(self._missing):
            self._send()

    def _send(self) -> None:
        bucket = self._layout.buckets[self._next]
        slots, gradients = [], []
        for member in bucket.members:
            gradient = self._layout.parameters[member].grad
            if gradient is None:
                self._flats.slots[member].zero_()
            else:
                slots.append(self._flats.slots[member])
                gradients.append(gradient)
        if slots:
            torch._foreach_copy_(slots, gradients)
        self._pending.append(self._exchange.sum(self._flats.tensors[self._next]))
        self._next += 1

    def wait(self) -> None:
        """Block until every bucket holds the sum over all ranks; raises `WorldError`."""
        for pending in self._pending:
            pending.wait()


def clear(parameters: Iterable[nn.Parameter]) -> None:
    """Drop every gradient."""
    for parameter in parameters:
        parameter.grad = None


def first_not_finite(gradients: Sequence[torch.Tensor | None]) -> int | None:
    """Return the number of the first gradient with a NaN or an infinity; None when all are finite."""
    for index, gradient in enumerate(gradients):
        # The sum is one cheap pass; it can overflow where no element did, hence the second look.
        suspect = gradient is not None and not math.isfinite(gradient.sum().item())
        if suspect and gradient is not None and not bool(torch.isfinite(gradient).all()):
            return index
    return None
