"""Batch norm in granules: each granule's own statistics, folded in position order at the commit.

While a step is computed every batch-norm layer writes its granule's mean and (unbiased) variance into
scratch buffers instead of its running statistics: with momentum 1 the layer's own update *is* the batch's
statistics. They travel as one row for each granule, zeros elsewhere, so the sum over ranks is exact; the
model itself changes only in `fold`, alike on every rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from daisychain.errors import JobError


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer and its place in a row: mean, variance, then 1 when the granule used it."""

    name: str
    module: _BatchNorm
    start: int
    features: int

    @property
    def stop(self) -> int:
        return self.start + 2 * self.features + 1


class Norms:
    """The batch-norm layers of a model that keep running statistics."""

    def __init__(self, model: nn.Module, file: str) -> None:
        self._file = file
        self._layers: list[_Layer] = []
        width = 0
        for name, module in model.named_modules():
            if isinstance(module, _BatchNorm) and module.running_mean is not None:
                layer = _Layer(name, module, width, module.running_mean.numel())
                self._layers.append(layer)
                width = layer.stop
        self.width = width
        wide = any(
            layer.module.running_mean is not None and layer.module.running_mean.dtype == torch.float64
            for layer in self._layers
        )
        self._dtype = torch.float64 if wide else torch.float32

    def __bool__(self) -> bool:
        return bool(self._layers)

    def rows(self, granules: int) -> torch.Tensor:
        """Return zeros: one row for each granule of the global batch."""
        return torch.zeros(granules, self.width, dtype=self._dtype)

    def names(self) -> set[str]:
        """Return the full names of the buffers that forward may change."""
        found = set()
        for layer in self._layers:
            for name, _ in layer.module.named_buffers(prefix=layer.name, recurse=False):
                found.add(name)
        return found

    @contextmanager
    def collecting(self, rows: torch.Tensor, index: int, samples: int) -> Iterator[None]:
        """Compute granule ``index`` within: its statistics go to its row, the model's stay as they are.

        A granule of one sample (the last of an epoch can be) has no variance: it is normalised with
        the running statistics, and adds nothing to them.
        """
        if not self._layers:
            yield
            return
        active = [layer for layer in self._layers if layer.module.training]
        kept = [(layer.module._buffers.copy(), layer.module.momentum) for layer in active]
        try:
            for layer in active:
                self._divert(layer, samples)
            yield
            if samples > 1:
                for layer in active:
                    self._note(layer, rows[index])
        finally:
            for layer, (buffers, momentum) in zip(active, kept, strict=True):
                layer.module._buffers.update(buffers)
                layer.module.momentum = momentum
                layer.module.training = True

    def _divert(self, layer: _Layer, samples: int) -> None:
        if samples == 1:
            layer.module.training = False
            return
        buffers = layer.module._buffers
        for key in ("running_mean", "running_var", "num_batches_tracked"):
            buffer = buffers[key]
            if buffer is not None:
                buffers[key] = torch.zeros_like(buffer)
        layer.module.momentum = 1.0

    def _note(self, layer: _Layer, row: torch.Tensor) -> None:
        buffers = layer.module._buffers
        mean, variance, tracked = (
            buffers[key] for key in ("running_mean", "running_var", "num_batches_tracked")
        )
        if mean is None or variance is None or tracked is None:
            raise JobError(
                self._file, f"forward takes away the statistics of {layer.name}", "Leave them in place"
            )
        uses = int(tracked.item())
        if uses > 1:
            raise JobError(
                self._file,
                f"the batch norm {layer.name} is used {uses} times in one forward pass",
                "Give each place a BatchNorm of its own",
            )
        if uses == 1:
            middle = layer.start + layer.features
            # + 0.0 turns -0.0 into 0.0, as the sum over ranks would.
            row[layer.start : middle].copy_(mean).add_(0.0)
            row[middle : layer.stop - 1].copy_(variance).add_(0.0)
            row[layer.stop - 1] = 1.0

    def fold(self, rows: torch.Tensor) -> None:
        """Take the granules' statistics into the model's running ones, in position order.

        running += (granule's - running) * momentum; momentum None means 1 / (granules so far), as in torch.
        """
        for layer in self._layers:
            module, middle = layer.module, layer.start + layer.features
            mean, variance, tracked = module.running_mean, module.running_var, module.num_batches_tracked
            if mean is None or variance is None or tracked is None:
                continue
            seen = int(tracked.item())
            used = rows[:, layer.stop - 1].tolist()
            own = rows[:, layer.start : layer.stop - 1].to(device=mean.device, dtype=mean.dtype)
            for granule, flag in enumerate(used):
                if flag == 0.0:
                    continue
                seen += 1
                weight = 1.0 / seen if module.momentum is None else module.momentum
                mean.lerp_(own[granule, : middle - layer.start], weight)
                variance.lerp_(own[granule, middle - layer.start :], weight)
            tracked.fill_(seen)
