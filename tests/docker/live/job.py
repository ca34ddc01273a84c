"""The job that live chains train: it ends when the test says so, and its model counts its own visits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from daisychain.trainer.engine.sampler import order
from support.job_folders import write_job

NAME = "digits"
"""What the demo's setup calls the job that it drops."""

SAMPLES, BATCH, SEED = 64, 16, 5

CODE = f'''
"""One float64 parameter a sample; each visit adds 1. A file `end` in a node's run folder ends the run."""

import time
from pathlib import Path

import torch
from torch import nn

END = Path.cwd() / "end"


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.counts = nn.Parameter(torch.zeros({SAMPLES}))


def model():
    return Counts()


def dataset(split):
    return torch.arange({SAMPLES} if split == "train" else {BATCH})


def loss(model, samples):
    if not model.training:  # falls until the end is called, when early stopping ends the run on all nodes
        return torch.tensor(1e9) if END.exists() else -model.counts.detach().sum()
    time.sleep(0.01)
    return -model.counts[samples].mean()


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr={float(BATCH)})
'''


def write_live_job(folder: Path) -> Path:
    """Write the job into ``folder``."""
    return write_job(
        folder,
        CODE,
        global_batch_size=BATCH,
        steps=1_000_000,
        dtype="float64",
        seed=SEED,
        evaluate_every_steps=50,
        early_stopping=1,
    )


def counts_of(model: Path, steps: int) -> bool:
    """Whether the model saw the samples of the first ``steps`` batches, each as often as it should."""
    epochs, rest = divmod(steps, SAMPLES // BATCH)
    wanted = np.full(SAMPLES, float(epochs))
    wanted[order(SEED, epochs, SAMPLES)[: rest * BATCH]] += 1
    return bool(np.array_equal(load_file(model)["counts"], wanted))
