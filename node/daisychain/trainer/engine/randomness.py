"""The generators that a forward may draw from: seeded right before it, on the training thread only."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def seed_all(seed: int) -> None:
    """Seed torch (every device), Python's ``random`` and numpy's global generator."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)


@contextmanager
def restored_generators() -> Iterator[None]:
    """Give every generator back in the state it had."""
    own, python, numpy_state = torch.get_rng_state(), random.getstate(), np.random.get_state()
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    try:
        yield
    finally:
        torch.set_rng_state(own)
        random.setstate(python)
        np.random.set_state(numpy_state)
        if devices:
            torch.cuda.set_rng_state_all(devices)


class Drawn:
    """Notices whether random numbers were drawn since it was made (numpy's and Python's included)."""

    def __init__(self) -> None:
        self._before = self._state()

    def anything(self) -> bool:
        """Return whether any generator moved on."""
        torch_then, python_then, numpy_then = self._before
        torch_now, python_now, numpy_now = self._state()
        return not torch.equal(torch_then, torch_now) or (python_then, numpy_then) != (python_now, numpy_now)

    @staticmethod
    def _state() -> tuple[torch.Tensor, object, tuple[bytes, int]]:
        state = np.random.get_state(legacy=False)["state"]
        own = torch.get_rng_state()
        if torch.cuda.is_available():
            own = torch.cat([own, *torch.cuda.get_rng_state_all()])
        return own, random.getstate(), (state["key"].tobytes(), int(state["pos"]))
