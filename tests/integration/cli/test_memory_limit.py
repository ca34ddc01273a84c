"""A job that allocates more than the node allows fails for want of memory; the machine does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import torch
from torch import nn


def model():
    return nn.Linear(2, 1)


def dataset(split):
    {loading}
    return torch.zeros(64, 2), torch.zeros(64, 1)


def loss(model, batch):
    {training}
    return model(batch[0]).square().mean()
"""

EAGER = "torch.ones(1 << 29)"  # 2 GiB


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels bound no process")
@pytest.mark.parametrize(
    ("loading", "training"), [(EAGER, "pass"), ("pass", EAGER), ("bytearray(1 << 31)", "pass")]
)
def test_past_the_limit_the_job_fails_and_says_why(tmp_path: Path, loading: str, training: str) -> None:
    job = tmp_path / "jobs" / "greedy"
    job.mkdir(parents=True)
    (job / "net.py").write_text(CODE.format(loading=loading, training=training))
    (job / "job.yaml").write_text("kind: python\nfile: net.py\nglobal_batch_size: 16\nepochs: 1\n")
    folders = ["--state-folder", str(tmp_path / "state"), "--jobs-folder", str(job.parent)]
    limit = ["--memory-max-bytes", str(1 << 30)]
    command = [sys.executable, "-m", "daisychain.cli", "run", "greedy", *folders, *limit]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    assert done.returncode == 7, done.stderr
    assert "emory" in done.stderr
    assert "smaller" in done.stderr, "what to do"
