"""`make bench-recovery`: from a fault to the next committed step, beside torchft and torchrun elastic.

The same torch, model and data, on the same three machines (network and UTS namespaces on one bridge), each
system at the fastest settings found for it. Writes `build/bench/recovery.json`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import report
from bench.chain_audit import Losses
from bench.chain_trials import SOURCE, ChainUnderTest
from bench.faults import JOIN, PROMISED_P95_S, PROMISED_PAUSE_P95_S, Fault, Trials
from bench.peers.environment import NoPeersError, peer_systems
from bench.peers.system import System
from bench.peers.trials import PeerChain, PeerCounts
from daisychain.core.settings import CoreSettings
from rig.chain import rig_chain
from rig.lan import lan
from rig.requirements import RigUnavailable

NAMES = ("ada", "bob", "cem")


@dataclass(frozen=True)
class Size:
    """How often each fault is tried: on DaisyChain, and on each competitor (whose restarts take longer)."""

    trials: int
    peers: PeerCounts


FULL = Size(20, PeerCounts(kills=6, silences=4, none_after_s=30.0))
QUICK = Size(2, PeerCounts(kills=1, silences=1, none_after_s=15.0))


def main() -> int:
    """Run what was asked for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, help="trials of each fault on DaisyChain")
    parser.add_argument("--alone", action="store_true", help="without the competitors; nothing is written")
    given = parser.parse_args()
    size = QUICK if report.quick() else FULL
    try:
        systems = [] if given.alone else peer_systems()
        trials, losses = our_trials(given.trials or size.trials)
        peers = {system.name: peer_trials(system, size.peers) for system in systems}
    except (RigUnavailable, NoPeersError) as error:
        sys.stderr.write(f"bench-recovery cannot run here: {error}\n")
        return 2
    told = result(trials, losses, given.trials or size.trials, {s.name: (s, peers[s.name]) for s in systems})
    if not given.alone:
        report.publish("recovery", told, keep=not report.quick())
    print_table(told)
    return 0


def our_trials(count: int) -> tuple[Trials, Losses]:
    """Return what ``count`` trials of each fault gave on DaisyChain, and what was lost over all of them."""
    trials = Trials()
    with lan(NAMES) as network, rig_chain() as chain:
        subject = ChainUnderTest(chain, network, NAMES)
        for _ in range(count):
            for fault in Fault:
                subject.trial(fault, trials)
        losses = subject.end()
    return trials, losses


def peer_trials(system: System, counts: PeerCounts) -> Trials:
    """Return what the trials of a competitor gave."""
    with lan(NAMES) as network, tempfile.TemporaryDirectory(prefix="peer-") as folder:
        chain = PeerChain(system, network, NAMES, Path(folder), SOURCE / "model.py")
        try:
            return chain.trials(counts)
        finally:
            chain.close()


def result(
    trials: Trials, losses: Losses, count: int, peers: Mapping[str, tuple[System, Trials]]
) -> dict[str, Any]:
    """Return the whole result, as it is written."""
    settings = CoreSettings()
    return {
        "trials": count,
        "faults": trials.result(),
        "steps_lost": losses.steps_lost,
        "samples_lost": losses.samples_lost,
        "samples_repeated": losses.samples_repeated,
        "step_ms": trials.step_ms(),
        "settings": {
            "heartbeat_s": settings.heartbeat_s,
            "silence_floor_s": settings.silence_floor_s,
            "note": "the defaults: nothing is tuned",
        },
        "peers": {
            name: {
                "version": system.version,
                "faults": found.result(),
                "step_ms": found.step_ms(),
                "stuck": found.stuck,
                "settings": dict(system.settings),
            }
            for name, (system, found) in peers.items()
        },
        "machine": report.machine(),
        "quick": report.quick(),
    }


def print_table(told: Mapping[str, Any]) -> None:
    """Print the figures side by side, and under them what each system was set to."""
    systems = {"DaisyChain": told, **told["peers"]}
    rows = []
    for kind in (*Fault, JOIN):
        row = [str(kind), f"<= {PROMISED_P95_S[kind]:g} s"]
        for system in systems.values():
            figures = system["faults"].get(kind)
            row.append("-" if figures is None else report.seconds(figures["p50_s"]))
            row.append("-" if figures is None else report.seconds(figures["p95_s"]))
        rows.append(row)
    columns = ["from the fault to the next committed step", "promised, p95"]
    columns += [f"{name} {part}" for name in systems for part in ("p50", "p95")]
    notes = [
        _of_joins(told["faults"].get(JOIN)),
        f"lost: {told['steps_lost']} steps, {told['samples_lost']} samples; "
        f"repeated: {told['samples_repeated']} samples",
    ]
    notes += [
        f"{name}: a step takes {system['step_ms']} ms; {system['settings']}"
        for name, system in systems.items()
    ]
    report.show(f"{told['trials']} trials of each fault", columns, rows, notes)


def _of_joins(figures: Mapping[str, Any] | None) -> str:
    if figures is None:
        return "no node came back"
    return (
        f"DaisyChain's training pauses for a joiner: p95 {figures['pause_p95_s']} s (promised "
        f"{PROMISED_PAUSE_P95_S:g} s); from start to first step {figures['start_to_first_step_p95_s']} s"
    )


if __name__ == "__main__":
    sys.exit(main())
