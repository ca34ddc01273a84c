"""`make bench-storm`: what a chain of four keeps of its speed while faults of every kind befall it.

An honest comparison. Four nodes share this machine's few cores, so a node that is away would make the
others faster: that would flatter the storm. So a node here is a fixed amount of compute: every granule of
the job sleeps 50 ms on whatever node takes it. Four nodes take three granules each, three take four, so a
node that is away costs what it costs at home: its part. The storm's samples/s are set against those of the
same chain in the same run, just before and just after it, with all four nodes and no fault. Counted are
committed samples, by the times in the run's own record: steps redone, detection, worlds that form and nodes
that load again are all paid from them. A node is back a few seconds after its fault, as one is that somebody
switches on again.

Faults are a Poisson process from a seed, at random nodes, one of every kind before any comes again. At the
end the run is let go at full speed, and its model must be, to the bit, the one that one process makes.
Writes `build/bench/storm.json`.
"""

from __future__ import annotations

import argparse
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench import report
from bench.storm_faults import FULL_CPUS, KINDS, Gust, Sky, draw
from bench.storm_job import BATCH, GRANULE, GRANULE_S, JOB, STEPS_AN_EPOCH, lost_and_repeated, write_job
from daisychain.core.jobs import JobState
from rig.chain import environment_of_rig, rig_chain
from rig.cpu import Machine, cpu_groups
from rig.lan import lan
from rig.node import RigNode
from rig.requirements import RigUnavailable
from support.progress import trains_together
from support.waiting import until

NAMES = ("ada", "bob", "cem", "dan")
PROMISED = 0.90
TOGETHER_S = 90.0
SPARE_S = 45.0
"""What the nodes may take to come together before the storm and after it."""

END_S = 900.0
"""For the run's end at full speed, and for the one process: minutes on a quiet machine."""

STEP_S = BATCH / GRANULE / len(NAMES) * GRANULE_S
POLL_S = 0.05


@dataclass(frozen=True)
class Size:
    """Seconds of calm before the storm and after it, of the storm, and faults an hour in it."""

    calm_s: float
    storm_s: float
    per_hour: float = 72.0

    @property
    def epochs(self) -> int:
        """More than can be trained until the end is called."""
        return int((2 * self.calm_s + self.storm_s + SPARE_S) / STEP_S / STEPS_AN_EPOCH) + 1


FULL = Size(60.0, 600.0)
QUICK = Size(15.0, 60.0, 120.0)


@dataclass(frozen=True)
class Weather:
    """What the run's record says: Unix seconds at which each part began and ended."""

    before: tuple[float, float]
    storm: tuple[float, float]
    after: tuple[float, float]


def main() -> int:
    """Run the storm; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 31), help="of the faults")
    seed: int = parser.parse_args().seed
    size = QUICK if report.quick() else FULL
    gusts = draw(seed, size.storm_s, size.per_hour, len(NAMES))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing is left behind
    print(f"seed {seed}: {len(gusts)} faults in {size.storm_s:g} s", flush=True)
    try:
        result = blow(seed, size, gusts)
    except RigUnavailable as error:
        sys.stderr.write(f"bench-storm cannot run here: {error}\n")
        return 2
    report.publish("storm", result, keep=not report.quick())
    show(result)
    sound = not result["samples_lost"] and not result["samples_repeated"] and result["bit_identical"]
    return 0 if sound and result["throughput_kept"] >= PROMISED else 1


def blow(seed: int, size: Size, gusts: Sequence[Gust]) -> dict[str, Any]:
    """Return what a storm costs a chain of four."""
    speeds = dict.fromkeys(NAMES, FULL_CPUS)
    with lan(NAMES) as net, cpu_groups(speeds) as groups, rig_chain() as chain:
        pace = chain.folder / "pace"
        pace.touch()
        nodes = []
        for name in NAMES:
            write_job(chain.prepare(name), pace, size.epochs)
            machine = Machine(net.place(name), groups[name])
            nodes.append(chain.start(machine, "--min-nodes", str(len(NAMES))))
        for node in nodes:
            node.await_start()
        trains_together(nodes, TOGETHER_S)
        before = _calm(size.calm_s)
        storm = _storm(Sky(chain, net, nodes, groups), gusts, size.storm_s)
        trains_together(nodes, TOGETHER_S)
        after = _calm(size.calm_s)
        print(f"calm again; the run is let go at step {nodes[0].step()}", flush=True)
        pace.unlink()
        for node in nodes:
            until(partial(_finished, node), END_S, f"{node.name} does not finish the run")
        print("the chain has finished; one process trains the same", flush=True)
        alone = _train_alone(Path(tempfile.mkdtemp(dir=chain.folder)), pace, size.epochs)
        return told(seed, gusts, nodes, Weather(before, storm, after), alone, size.epochs)


def told(
    seed: int, gusts: Sequence[Gust], nodes: Sequence[RigNode], weather: Weather, alone: Path, epochs: int
) -> dict[str, Any]:
    """Return what the bench writes, from the ended chain's records and models."""
    lines = nodes[0].journal(JOB)
    models = [node.jobs / JOB / "result" / "model.safetensors" for node in nodes]
    counted = [lost_and_repeated(model, epochs) for model in models]
    audits = [node.summary(JOB)["audit"] for node in nodes]
    calm = (rate(lines, *weather.before) + rate(lines, *weather.after)) / 2
    stormy = rate(lines, *weather.storm)
    seconds = weather.storm[1] - weather.storm[0]
    return {
        "faults": len(gusts),
        "faults_per_hour": round(len(gusts) / seconds * 3600, 1),
        "throughput_kept": round(stormy / calm, 4),
        "samples_lost": max(*(lost for lost, _ in counted), *(audit["samples_lost"] for audit in audits)),
        "samples_repeated": max(
            *(again for _, again in counted), *(audit["samples_repeated"] for audit in audits)
        ),
        "bit_identical": {model.read_bytes() for model in models} == {alone.read_bytes()},
        "seed": seed,
        "samples_per_s": {"calm": round(calm, 1), "storm": round(stormy, 1)},
        "storm_s": round(seconds, 1),
        "kinds": dict(sorted(Counter(gust.fault.value for gust in gusts).items())),
        "worlds": len(audits[0]["worlds"]),
        "machine": report.machine(),
    }


def rate(lines: Sequence[dict[str, Any]], began_at: float, ended_at: float) -> float:
    """Return committed samples a second between two moments, by the record's own times."""
    samples = sum(
        line["samples"] for line in lines if "samples" in line and began_at <= line["at"] < ended_at
    )
    return float(samples) / (ended_at - began_at)


def show(result: dict[str, Any]) -> None:
    """Print the outcome beside what is promised."""
    report.show(
        f"storm of seed {result['seed']}: {result['faults']} faults in {result['storm_s']:g} s",
        ("", "found", "promised"),
        [
            ("faults an hour", str(result["faults_per_hour"]), ">= 60"),
            ("samples/s kept", f"{result['throughput_kept']:.3f}", f">= {PROMISED:.2f}"),
            ("samples lost", str(result["samples_lost"]), "0"),
            ("samples repeated", str(result["samples_repeated"]), "0"),
            ("the model of one process, to the bit", "yes" if result["bit_identical"] else "no", "yes"),
        ],
        [f"kinds: {', '.join(f'{name} {count}' for name, count in result['kinds'].items())}"],
    )


def _calm(seconds: float) -> tuple[float, float]:
    began_at = time.time()
    time.sleep(seconds)
    return began_at, time.time()


def _storm(sky: Sky, gusts: Sequence[Gust], seconds: float) -> tuple[float, float]:
    """Do every fault at its time and undo it; a node that is down already is spared, its neighbour is hit."""
    began_at = time.time()
    coming = list(gusts)
    ending: list[tuple[float, Gust, RigNode]] = []
    while (elapsed_s := time.time() - began_at) < seconds or ending:
        for entry in [entry for entry in ending if entry[0] <= elapsed_s]:
            ending.remove(entry)
            _, gust, victim = entry
            KINDS[gust.fault].end(sky, victim)
        while coming and coming[0].at_s <= elapsed_s:
            gust = coming.pop(0)
            busy = {victim.name for _, _, victim in ending}
            order = [*sky.nodes[gust.victim :], *sky.nodes[: gust.victim]]
            free = [node for node in order if node.running and node.name not in busy]
            victim = (free or [node for node in order if node.running])[0]
            leads = " (coordinator)" if victim.leads() else ""
            print(f"{elapsed_s:6.1f} s  {gust.fault.value:15} {victim.name}{leads}", flush=True)
            KINDS[gust.fault].begin(sky, victim)
            ending.append((time.time() - began_at + KINDS[gust.fault].lasts_s, gust, victim))
        time.sleep(POLL_S)
    return began_at, time.time()


def _finished(node: RigNode) -> bool:
    return node.state_of(JOB) is JobState.FINISHED


def _train_alone(folder: Path, pace: Path, epochs: int) -> Path:
    """Train the same job in one process; return its model's file."""
    job = write_job(folder / "jobs", pace, epochs)
    command = [sys.executable, "-m", "daisychain.cli", "run", str(job)]
    command += ["--state-folder", str(folder / "state"), "--threads", "1"]
    subprocess.run(command, env=environment_of_rig(), check=True, capture_output=True, timeout=END_S)
    return job / "result" / "model.safetensors"


if __name__ == "__main__":
    sys.exit(main())
