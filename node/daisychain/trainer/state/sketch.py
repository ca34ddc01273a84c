"""A few numbers that tell whether two states are the same up to rounding.

For each tensor its norm and two projections on fixed sign vectors, in float64. Two tensors that differ
by d differ in a projection by about ``|d|``, so the difference relative to the norm measures drift.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

WIDTH = 3
"""Numbers a tensor: its norm and two projections."""

_ROW = 16_381
"""Elements that share one sign vector (a prime, so that rows of layers do not line up with it)."""


class Sketcher:
    """Makes sketches; keeps its sign vectors (0.4 MB)."""

    def __init__(self, seed: int = 0x5EED) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._signs = torch.randint(0, 2, (2, _ROW), generator=generator).double().mul_(2).sub_(1)

    def of(self, tensor: torch.Tensor) -> tuple[float, float, float]:
        """Return (norm, projection, projection) of ``tensor``; zeros for one without elements."""
        values = tensor.detach().reshape(-1).to(device="cpu", dtype=torch.float64)
        found = self._project(values)
        return float(values.dot(values).sqrt()), float(found[0]), float(found[1])

    def _project(self, values: torch.Tensor) -> torch.Tensor:
        """Return the two projections: rows of the tensor on the signs, summed with signs of their own."""
        whole = values.numel() // _ROW * _ROW
        found = torch.zeros(2, dtype=torch.float64)
        if whole:
            rows = values[:whole].view(-1, _ROW) @ self._signs.T
            for which in range(2):
                picked = self._signs[which].repeat(rows.shape[0] // _ROW + 1)[: rows.shape[0]]
                found[which] = rows[:, which].dot(picked)
        rest = values[whole:]
        return found + self._signs[:, 1 : rest.numel() + 1] @ rest


def differ(first: Sequence[float], second: Sequence[float], tolerance: float) -> bool:
    """Return whether any tensor's sketches are further apart than ``tolerance`` times its norm.

    Sketches that are not finite differ from everything, those of other numbers of tensors from each other.
    """
    if len(first) != len(second):
        return True
    for start in range(0, len(first), WIDTH):
        one, two = first[start : start + WIDTH], second[start : start + WIDTH]
        bound = tolerance * max(one[0], two[0])
        if not all(abs(a - b) <= bound for a, b in zip(one, two, strict=True)):
            return True
    return False
