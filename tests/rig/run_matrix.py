"""`make matrix`: runs rows of the fault matrix, some at a time, each with processes and a LAN of its own.

Prints a line a row, the story of each that failed, and how to run that one alone. Everything that the rows
said is left in ``build/matrix/``. Exit codes: 0 = all as expected (or the rig cannot run here: told),
1 = some were not, 2 = a wrong call.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rig.chain import ROOT, environment_of_rig
from rig.lan import lan
from rig.matrix import Row, rows, selection
from rig.outcome import train_alone
from rig.requirements import RigUnavailable

LEFT = ROOT / "build" / "matrix"
ROW_S, END_S = 240.0, 30.0
POLL_S = 0.1


@dataclass
class Running:
    """One row under way."""

    row: Row
    process: subprocess.Popen[bytes]
    said: Path
    began_at: float

    def overdue(self) -> bool:
        return time.monotonic() - self.began_at > ROW_S

    def end(self) -> None:
        """Ask the row to take its chain down; past the bound it is killed with all that it started."""
        if self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def chosen(options: argparse.Namespace) -> list[Row]:
    """Return the rows that were asked for."""
    table = rows()
    if options.row:
        return [row for row in table if row.name.startswith(tuple(options.row.split(",")))]
    return selection(table) if options.quick else table


def run(table: Sequence[Row], alone: Path, at_a_time: int) -> list[Row]:
    """Run the rows; return those that were not as expected."""
    LEFT.mkdir(parents=True, exist_ok=True)
    waiting, running, failed, done = deque(table), list[Running](), list[Row](), 0
    try:
        while waiting or running:
            while waiting and len(running) < at_a_time:
                running.append(_start(waiting.popleft(), alone))
            time.sleep(POLL_S)
            for each in list(running):
                if each.process.poll() is None and not each.overdue():
                    continue
                running.remove(each)
                done += 1
                if not _tell(each, f"{done}/{len(table)}"):
                    failed.append(each.row)
    finally:
        for each in running:
            each.end()
    return failed


def _start(row: Row, alone: Path) -> Running:
    said = LEFT / f"{row.name.replace('/', '.')}.txt"
    command = [sys.executable, "-m", "rig.row", row.name, "--alone", str(alone)]
    with said.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=environment_of_rig(), start_new_session=True
        )
    return Running(row, process, said, time.monotonic())


def _tell(each: Running, count: str) -> bool:
    """Print what came of a row; return whether it was as expected."""
    took_s = time.monotonic() - each.began_at
    each.end()
    text = each.said.read_text(errors="replace")
    if each.process.returncode == 0:
        print(f"ok    {count:>7}  {each.row.name:<52} {took_s:5.1f} s  {text.splitlines()[-1]}", flush=True)
        return True
    late = f" (ended after {ROW_S:.0f} s)" if took_s > ROW_S else ""
    print(f"FAIL  {count:>7}  {each.row.name:<52} {took_s:5.1f} s{late}\n{text}", flush=True)
    print(f"  expected: {each.row.expected}\n  alone: make matrix ROW={each.row.name}", flush=True)
    return False


def main() -> int:
    """Run what was asked for; returns the exit code."""
    parser = argparse.ArgumentParser(description="Run the fault matrix, or rows of it.")
    parser.add_argument("--quick", action="store_true", help="a selection that covers the table")
    parser.add_argument("--row", default="", help="names of rows, or how they begin; parted by commas")
    parser.add_argument("--at-a-time", type=int, default=2, help="rows at a time")
    parser.add_argument("--list", action="store_true", help="names only")
    options = parser.parse_args()
    table = chosen(options)
    if not table:
        print(f"no row is called {options.row}; see --list", file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(row.name for row in table))
        return 0
    try:
        with lan(["probe"]):
            pass
    except RigUnavailable as why:
        print(f"the fault matrix is skipped: {why}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # rows are taken down whatever happens
    began_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rig-alone-") as folder:
        for mode in sorted({row.mode for row in table}):
            train_alone(Path(folder) / mode, mode)
        failed = run(table, Path(folder), options.at_a_time)
    took_s = time.monotonic() - began_at
    print(f"{len(table) - len(failed)} of {len(table)} rows as expected, {took_s / 60:.1f} minutes")
    for row in failed:
        print(f"  FAIL {row.name}   make matrix ROW={row.name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
