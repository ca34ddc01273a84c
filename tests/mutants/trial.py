"""One mutant against the tests: unit tests first, then the simulator."""

from __future__ import annotations

import difflib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "node" / "daisychain"
UNIT_S, SIMULATOR_S = 60.0, 120.0
"""A mutant that takes longer than this is stuck: that is noticed, too."""

SEEDS = 60


class Mutant(msgspec.Struct, frozen=True):
    """A core file with one change."""

    file: str
    line: int
    column: int
    operator: str
    source: str

    @property
    def name(self) -> str:
        """What it is called in the report."""
        return f"{self.file}:{self.line}:{self.column} {self.operator}"


class Verdict(msgspec.Struct, frozen=True):
    """What became of a mutant: ``killed_by`` the unit tests, the simulator, or empty: it survived."""

    mutant: str
    killed_by: str
    seconds: float
    change: str


def try_out(mutant: Mutant, work: Path) -> Verdict:
    """Run the tests on a copy of the package with this one change in it."""
    started = time.monotonic()
    copy = work / "node" / "daisychain"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "core" / mutant.file).write_text(mutant.source, encoding="utf-8")
    killed_by = ""
    for tier, command, bound_s in _tiers(mutant):
        if not passes(command, work / "node", bound_s):
            killed_by = tier
            break
    original = (PACKAGE / "core" / mutant.file).read_text(encoding="utf-8")
    return Verdict(mutant.name, killed_by, time.monotonic() - started, change(original, mutant.source))


def _tiers(mutant: Mutant) -> list[tuple[str, list[str], float]]:
    """Return the commands in order: the file's own unit tests come first of all."""
    own = f"tests/unit/core/test_{mutant.file}"
    units = [own] if (ROOT / own).exists() else []
    pytest = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout", "30"]
    return [
        ("unit tests", [*pytest, *units, "tests/unit/core"], UNIT_S),
        ("simulator", [sys.executable, "-m", "mutants.look", str(SEEDS)], SIMULATOR_S),
        ("simulator", [*pytest, "tests/simulation/test_recovery.py"], SIMULATOR_S),
    ]


def passes(command: list[str], node: Path, bound_s: float) -> bool:
    """Whether a command ends well in time; its whole process group ends with it."""
    paths = f"{node}{os.pathsep}{ROOT / 'tests'}"
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            return process.wait(bound_s) == 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return False


def change(before: str, after: str) -> str:
    """Return the changed lines."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))
