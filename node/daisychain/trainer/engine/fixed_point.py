"""Gradients as integers, so that their sum is the same in any order and on any split.

A parameter's gradient of one granule, g, becomes round(g * 2^(bits - exponent)) where |g| < 2^exponent and
bits = width - ceil(log2(granules)) - HEADROOM, so that no sum of a batch can overflow. The exponents (one
a parameter) are part of the training state: they follow the last reduced gradient, and a granule that does
not fit makes the step be redone with exponents that do.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from daisychain.trainer.engine.gradients import INTEGERS, Flats, Layout

HEADROOM = 1
"""Bits that the sum of a whole batch leaves free."""

MARGIN = 3
"""An exponent lies this far above the last reduced gradient: a granule may be 8 times as large."""

UNKNOWN = -(1 << 15)
"""The exponent of a parameter whose gradient was never other than zero: nothing else fits."""

LOWEST = -90
"""No smaller exponent is used: the scale must be a finite float32."""


def bits(granules: int, dtype: torch.dtype) -> int:
    """Return the bits of magnitude that one granule's gradient has, of ``granules`` in the batch."""
    width = 63 if INTEGERS.get(dtype) is torch.int64 else 31
    return width - (granules - 1).bit_length() - HEADROOM


def unknown(layout: Layout) -> torch.Tensor:
    """Return the exponents of a run that has not begun: int64, one for each parameter."""
    return torch.full((len(layout.parameters),), UNKNOWN, dtype=torch.int64)


def largest(gradients: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the largest magnitude in each of ``gradients``: float64 on the host; NaN where there is one."""
    # aminmax takes a twentieth of the time of an infinity norm, and hands NaN on as well.
    ends = [torch.aminmax(gradient) for gradient in gradients]
    lows = torch.stack([end.min.double() for end in ends])
    highs = torch.stack([end.max.double() for end in ends])
    return torch.maximum(-lows, highs).cpu()


def exponents_of(magnitudes: torch.Tensor) -> torch.Tensor:
    """Return for each magnitude the least exponent e >= LOWEST with magnitude < 2^e; UNKNOWN for zero."""
    found = torch.frexp(magnitudes)[1].to(torch.int64).clamp_(min=LOWEST)
    return torch.where(magnitudes == 0, torch.full_like(found, UNKNOWN), found)


class Accumulator:
    """The sum of one rank's granules in integers.

    Attributes:
        flats: the integers, to be summed over the ranks.
        needed: for each parameter the exponent that this rank's granules need; int64.
        out_of_range: some granule did not fit: ``flats`` is worthless, ``needed`` is not.
        not_finite: some granule had a NaN or an infinity.
    """

    def __init__(self, layout: Layout, flats: Flats, exponents: torch.Tensor, granules: int) -> None:
        self.flats = flats
        self.needed = unknown(layout)
        self.out_of_range = False
        self.not_finite = False
        self._exponents = exponents
        self._filled = [index for index, each in enumerate(layout.parameters) if each.numel() > 0]
        self._scales = [
            0.0 if exponent == UNKNOWN else 2.0 ** (bits(granules, parameter.dtype) - exponent)
            for parameter, exponent in zip(layout.parameters, exponents.tolist(), strict=True)
        ]

    def add(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Add one granule's gradients, in the parameters' order; None is zero."""
        present = [(index, each) for index in self._filled if (each := gradients[index]) is not None]
        if not present:
            return
        indices = torch.tensor([index for index, _ in present])
        values = [each for _, each in present]
        magnitudes = largest(values)
        if not bool(torch.isfinite(magnitudes).all()):  # before any cast: NaN and infinity have no integer
            self.not_finite = True
            return
        needed = exponents_of(magnitudes)
        self.needed[indices] = torch.maximum(self.needed[indices], needed)
        if bool((needed > self._exponents[indices]).any()):
            self.out_of_range = True
        if self.out_of_range:
            return
        scaled = torch._foreach_mul(values, [self._scales[index] for index, _ in present])
        torch._foreach_round_(scaled)
        for (index, _), value in zip(present, scaled, strict=True):
            slot = self.flats.slots[index]
            slot.add_(value.to(device="cpu", dtype=slot.dtype))


def values(layout: Layout, flats: Flats, exponents: torch.Tensor, granules: int) -> list[torch.Tensor]:
    """Return the gradient that summed integers stand for, in the parameters' dtypes, on the host."""
    found = []
    for parameter, slot, exponent in zip(layout.parameters, flats.slots, exponents.tolist(), strict=True):
        scale = 0.0 if exponent == UNKNOWN else 2.0 ** (exponent - bits(granules, parameter.dtype))
        found.append(slot.double().mul_(scale).to(parameter.dtype))
    return found


def follow(exponents: torch.Tensor, gradient: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the exponents of the next step: `MARGIN` above the reduced ``gradient``.

    They fall by one a step at most, so that one quiet step causes no redo; an all-zero gradient keeps its.
    """
    filled = [index for index, each in enumerate(gradient) if each.numel() > 0]
    result = exponents.clone()
    if filled:
        indices = torch.tensor(filled)
        seen = exponents_of(largest([gradient[index] for index in filled]))
        own = exponents[indices]
        result[indices] = torch.where(seen == UNKNOWN, own, torch.maximum(seen + MARGIN, own - 1))
    return result
