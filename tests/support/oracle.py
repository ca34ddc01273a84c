"""The reference: a plain PyTorch loop over the user's file. Imports nothing of the product.

The order of the samples is the documented one: the stable argsort of Philox's raw outputs.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau


def user_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"oracle_{path.parent.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def train_plainly(
    path: Path, seed: int, batch: int, epochs: int, clip: float | None = None
) -> dict[str, torch.Tensor]:
    """Train the job in ``path`` in float64 on this process alone; return its parameters and buffers."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return _train(user_file(path), seed, batch, epochs, clip)
    finally:
        torch.set_default_dtype(before)


def _train(
    user: ModuleType, seed: int, batch: int, epochs: int, clip: float | None
) -> dict[str, torch.Tensor]:
    model = user.model()
    optimizer = user.optimizer(list(model.parameters()))
    schedule = user.schedule(optimizer) if hasattr(user, "schedule") else None
    data = user.dataset("train")
    columns = data if isinstance(data, tuple) else (data,)
    samples = len(columns[0])
    for epoch in range(epochs):
        key = np.array([seed, epoch], dtype=np.uint64)
        order = np.argsort(np.random.Philox(key=key).random_raw(samples), kind="stable")
        for start in range(0, samples, batch):
            rows = torch.from_numpy(order[start : start + batch].copy())
            taken = tuple(column[rows] for column in columns)
            loss = user.loss(model, taken if isinstance(data, tuple) else taken[0])
            if isinstance(loss, tuple):
                loss = loss[0] / loss[1]
            optimizer.zero_grad()
            loss.backward()
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            if schedule is not None and not isinstance(schedule, ReduceLROnPlateau):
                schedule.step()
        if isinstance(schedule, ReduceLROnPlateau):
            with torch.no_grad():
                loss = user.loss(model, user.dataset("validation"))
            schedule.step(float(loss[0] / loss[1] if isinstance(loss, tuple) else loss))
    return {name: tensor.detach() for name, tensor in model.state_dict().items()}
