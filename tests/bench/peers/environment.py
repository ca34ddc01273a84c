"""The competitors' own environment, `.venv-bench`: made by `make bench-recovery`, never the product's."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.peers.system import System
from bench.peers.torchft_system import TorchFt
from bench.peers.torchrun_system import Torchrun
from bench.report import ROOT
from daisychain.host.versions import torch_version

PYTHON = ROOT / ".venv-bench" / "bin" / "python"

VERSIONS = "from importlib.metadata import version; print(version('torch'), version('torchft-nightly'))"


class NoPeersError(Exception):
    """The competitors cannot be run as they must be."""


def peer_systems(python: Path = PYTHON) -> list[System]:
    """Return the competitors; raises `NoPeersError` where they are missing or have another torch."""
    if not python.exists():
        raise NoPeersError(f"{python} is missing: `make bench-recovery` makes it")
    told = subprocess.run([python, "-c", VERSIONS], capture_output=True, text=True, check=False, timeout=60)
    if told.returncode != 0:
        raise NoPeersError(f"torchft is not installed for {python}: {told.stderr.strip()[-300:]}")
    torch, torchft = told.stdout.split()
    if torch != torch_version():
        raise NoPeersError(f"the competitors have torch {torch}, DaisyChain {torch_version()}: no comparison")
    return [TorchFt(python, torchft), Torchrun(python, torch)]
