"""The training flag of every module, kept and given back: a user may have frozen some."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn


def modes(model: nn.Module) -> list[tuple[nn.Module, bool]]:
    """Return every module with its training flag."""
    return [(module, module.training) for module in model.modules()]


def restore_modes(kept: Sequence[tuple[nn.Module, bool]]) -> None:
    """Set every training flag as it was."""
    for module, training in kept:
        module.training = training
