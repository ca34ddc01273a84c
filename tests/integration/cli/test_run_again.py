"""`daisychain run`, interrupted and run again: it goes on where it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from support.job_folders import counting_job
from support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(300)]

EPOCHS = 3000


def run(folder: Path, job: Path, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "daisychain.cli", "run", str(job), "--json", *flags]
    return subprocess.Popen(
        [*command, "--state-folder", str(folder / "state"), "--threads", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "DAISYCHAIN_CHECKPOINT_EVERY_S": "1"},
    )


def own(folder: Path) -> Path:
    (found,) = (folder / "state" / "runs").iterdir()
    return found


def trained(folder: Path) -> None:
    """Wait until some steps are in its record."""
    until(lambda: any((folder / "state").glob("runs/*/metrics.jsonl")), 60, "the run to begin")
    path = own(folder) / "metrics.jsonl"
    size = path.stat().st_size
    until(lambda: path.stat().st_size > size + 20_000, 60, "it to train")


@pytest.mark.parametrize(
    "end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=["Ctrl-C", "asked to end", "killed"]
)
def test_an_interrupted_run_goes_on_when_it_is_run_again(tmp_path: Path, end: signal.Signals) -> None:
    job = counting_job(tmp_path / "counting", EPOCHS)
    first = run(tmp_path, job)
    trained(tmp_path)
    saved = own(tmp_path) / "checkpoints"
    if end is signal.SIGKILL:
        until(lambda: any(saved.glob("*.state")), 30, "a checkpoint")
    first.send_signal(end)
    first.communicate(timeout=20)
    assert first.returncode == (-end if end is signal.SIGKILL else 130)
    step = max(int(path.stem) for path in saved.glob("*.state"))
    second = run(tmp_path, job)
    out, err = second.communicate(timeout=200)
    assert second.returncode == 0, err
    assert f"goes on from step {step} of {4 * EPOCHS}" in err
    assert json.loads(out)["step"] == 4 * EPOCHS
    audit = json.loads((job / "result" / "summary.json").read_text())["audit"]
    assert (audit["samples_lost"], audit["samples_repeated"]) == (0, 0)
    counts = load_file(job / "result" / "model.safetensors")["counts"]
    assert torch.equal(counts, torch.full((64,), float(EPOCHS), dtype=torch.float64))
    assert not saved.exists(), "a finished run keeps no checkpoint"


def test_anew_begins_at_step_0(tmp_path: Path) -> None:
    job = counting_job(tmp_path / "counting", EPOCHS)
    first = run(tmp_path, job)
    trained(tmp_path)
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=20)
    assert any((own(tmp_path) / "checkpoints").glob("*.state"))
    second = run(tmp_path, job, "--anew")
    until(lambda: not (own(tmp_path) / "checkpoints").exists(), 60, "the checkpoints to be gone")
    second.send_signal(signal.SIGINT)
    _, err = second.communicate(timeout=20)
    assert "goes on" not in err
