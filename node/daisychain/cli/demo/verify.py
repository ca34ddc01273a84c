"""The proof by comparison: the same job, in reproducible mode, in one process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import yaml

from daisychain.cli.demo.chain import copy_job
from daisychain.cli.demo.records import Record, read_record
from daisychain.errors import JobError

ALONE_S = 600.0
"""Bound on training the job in one process."""


def make_reproducible(job_folder: Path) -> None:
    """Set ``reproducible: true`` in a copy of a job; raises `JobError` when its job.yaml is no mapping."""
    file = job_folder / "job.yaml"
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise JobError("job.yaml", "it is no mapping", "See docs/JOBS.md")
    file.write_text(yaml.safe_dump({**content, "reproducible": True}), encoding="utf-8")


def train_alone(job_folder: Path, folder: Path) -> Record:
    """Train a copy of the job in one process (``daisychain run``) and return its record.

    Raises `JobError` with the run's last words when it fails or takes over ALONE_S.
    """
    copy = copy_job(job_folder, folder / "jobs")
    command = [sys.executable, "-m", "daisychain.cli", "run", str(copy)]
    command += ["--state-folder", str(folder / "state")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DAISYCHAIN_")}
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=ALONE_S, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        raise JobError(copy.name, f"one process did not finish it within {ALONE_S:g} s") from None
    if ended.returncode != 0:
        raise JobError(copy.name, f"one process could not train it: {ended.stderr.strip()[-400:]}")
    return read_record(copy)
