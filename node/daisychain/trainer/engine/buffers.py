"""Buffers that forward must leave alone: all but batch norm's running statistics."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from daisychain.errors import JobError


class FixedBuffers:
    """The buffers of a model that are the same whoever computes which samples."""

    def __init__(self, model: nn.Module, moving: Collection[str], file: str) -> None:
        self._file = file
        self._places = [
            (name, module, key)
            for prefix, module in model.named_modules()
            for key in module._buffers
            if (name := f"{prefix}.{key}" if prefix else key) not in moving
        ]

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Refuse, with `JobError`, a buffer that was written or replaced within."""
        before = [self._state(module, key) for _, module, key in self._places]
        yield
        for (name, module, key), (old, version) in zip(self._places, before, strict=True):
            new, now = self._state(module, key)
            if new is not old or now != version:
                raise JobError(
                    self._file,
                    f"forward changes the buffer {name}: what it holds would depend on who computes what",
                    "Keep it constant or compute it from the batch; batch norm's statistics are looked after",
                )

    @staticmethod
    def _state(module: nn.Module, key: str) -> tuple[torch.Tensor | None, int]:
        buffer = module._buffers.get(key)
        return buffer, 0 if buffer is None else buffer._version


@contextmanager
def restored(model: nn.Module) -> Iterator[None]:
    """Give every buffer back as it was, also one that was replaced."""
    kept = [
        (module, key, buffer, None if buffer is None else buffer.clone())
        for module in model.modules()
        for key, buffer in module._buffers.items()
    ]
    try:
        yield
    finally:
        with torch.no_grad():
            for module, key, buffer, value in kept:
                if buffer is not None and value is not None and not torch.equal(buffer, value):
                    buffer.copy_(value)
                module._buffers[key] = buffer
