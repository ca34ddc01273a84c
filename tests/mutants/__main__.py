"""`make mutants`: a seeded sample of the core's mutants against its unit tests and the simulator.

Resumable: verdicts so far are in the report, and hold for the same mutant of the same source.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from daisychain.host.storage import write_atomically
from mutants.trial import PACKAGE, ROOT, Mutant, Verdict, passes, try_out
from soak.record import digest_of

BUILD = ROOT / "build" / "mutants"
WANTED = 0.85


class Report(msgspec.Struct):
    """What became of the sample; ``source`` is the digest of it, of the core and of what tests that."""

    source: str
    sampled: int
    verdicts: dict[str, Verdict] = {}

    def killed(self) -> int:
        """How many the tests noticed."""
        return sum(1 for verdict in self.verdicts.values() if verdict.killed_by)


def _resume(path: Path, fresh: Report) -> Report:
    try:
        report = msgspec.json.decode(path.read_bytes(), type=Report)
    except (OSError, msgspec.DecodeError):
        return fresh
    return report if (report.source, report.sampled) == (fresh.source, fresh.sampled) else fresh


def main() -> int:
    """Try the sample, tell who survived, and return 1 when too many did or time ran out."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--workers", type=int, default=1, help="at a time")
    parser.add_argument(
        "--limit-s", type=float, default=3600.0, help="stop after so many seconds; go on later"
    )
    asked = parser.parse_args()
    drawn = (BUILD / "sample.json").read_bytes()
    chosen = msgspec.json.decode(drawn, type=list[Mutant])
    source = digest_of([PACKAGE / "core", ROOT / "tests/unit/core", ROOT / "tests/simulation"])
    source += hashlib.sha256(drawn).hexdigest()[:8]
    path = BUILD / "report.json"
    report = _resume(path, Report(source, len(chosen)))
    left = [mutant for mutant in chosen if mutant.name not in report.verdicts]
    print(f"{len(chosen)} mutants sampled, {len(left)} left to try", flush=True)
    if left and not passes([sys.executable, "-m", "mutants.look", "5"], PACKAGE.parent, 60.0):
        print("the simulator fails on the core as it is: no mutant can be judged")
        return 2
    deadline_at = time.monotonic() + asked.limit_s

    def work(number: int) -> None:
        for mutant in left[number :: asked.workers]:
            if time.monotonic() > deadline_at:
                return
            verdict = try_out(mutant, BUILD / f"worker {number}")
            report.verdicts[mutant.name] = verdict
            write_atomically(path, msgspec.json.format(msgspec.json.encode(report)))
            print(
                f"{verdict.seconds:5.1f} s  {verdict.killed_by or 'SURVIVED':10}  {mutant.name}", flush=True
            )

    with ThreadPoolExecutor(asked.workers) as pool:
        list(pool.map(work, range(asked.workers)))
    return tell(report)


def tell(report: Report) -> int:
    """Print the survivors and the share of the killed."""
    for name, verdict in sorted(report.verdicts.items()):
        if not verdict.killed_by:
            print(f"\nsurvived: {name}\n{verdict.change}")
    tried, killed = len(report.verdicts), report.killed()
    share = killed / tried if tried else 0.0
    print(f"\n{killed} of {tried} killed ({share:.1%}), {report.sampled - tried} of the sample not tried yet")
    return 0 if tried == report.sampled and share >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
