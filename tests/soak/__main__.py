"""`make soak`: ten thousand seeds of the simulator, up to 32 nodes; resumable, and bounded in time.

`make soak SEED=n` replays one, and looks for a shorter story when it breaks a promise.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from soak.record import Record, Seen, digest_of, resume
from soak.run import replay, soak

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [ROOT / "node/daisychain/core", ROOT / "node/daisychain/wire", ROOT / "tests/simulation"]
WRITE_S = 2.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="how many")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument(
        "--limit-s", type=float, default=3600.0, help="stop after so many seconds; go on later"
    )
    parser.add_argument(
        "--state", type=Path, default=ROOT / "build/soak/state.json", help="what was seen so far"
    )
    parser.add_argument("--seed", type=int, help="replay this one only")
    return parser.parse_args()


def report(record: Record, wanted: range, ran: int, wall_s: float) -> list[str]:
    """Return the lines that tell what was seen."""
    seen = [record.seeds[seed] for seed in wanted if seed in record.seeds]
    cpu_s = sum(each.cpu_s for each in seen)
    lines = [f"{len(seen)} of {len(wanted)} seeds, {len([e for e in seen if e.broken])} broke a promise"]
    if ran:
        lines.append(f"this sitting: {ran} seeds in {wall_s:.0f} s, {ran / wall_s:.1f} seeds/s")
    if seen:
        lines.append(f"all in all: {len(seen) / cpu_s:.1f} seeds/s of one core")
        times = sorted(each.together_s for each in seen if not each.broken)
        if times:
            p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
            lines.append(
                f"together again after healing: p50 {p50:.2f} s, p99 {p99:.2f} s, max {times[-1]:.2f} s"
            )
        sizes = sorted({each.nodes for each in seen})
        counts = [f"{size}: {len([e for e in seen if e.nodes == size])}" for size in sizes]
        lines.append(f"seeds by nodes: {', '.join(counts)}")
    for each in record.failures():
        lines.append(f"BROKEN {each.broken}\n  make soak SEED={each.seed}")
    return lines


def main() -> int:
    """Run, tell, and return 1 when a promise was broken."""
    asked = _arguments()
    if asked.seed is not None:
        story = replay(asked.seed)
        print(story or f"seed {asked.seed} breaks no promise")
        return 1 if story else 0
    record = resume(asked.state, digest_of(SOURCES))
    wanted = range(asked.first, asked.first + asked.seeds)
    left = [seed for seed in wanted if seed not in record.seeds]
    print(f"{len(left)} of {len(wanted)} seeds left to run, {asked.workers} workers", flush=True)
    started = written = time.monotonic()

    def seen(some: list[Seen]) -> None:
        nonlocal written
        record.add(some)
        for each in some:
            if each.broken:
                print(f"BROKEN {each.broken}", flush=True)
        if time.monotonic() > written + WRITE_S:
            written = time.monotonic()
            record.write(asked.state)

    soak(left, asked.workers, started + asked.limit_s, seen)
    record.write(asked.state)
    ran = len([seed for seed in left if seed in record.seeds])
    print("\n".join(report(record, wanted, ran, time.monotonic() - started)))
    return 1 if record.failures() else 0


if __name__ == "__main__":
    sys.exit(main())
