"""Trials of DaisyChain: one run under faults, on three nodes that come back after each of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.chain_audit import Losses, Seen, visits
from bench.chain_record import ChainRecord
from bench.faults import SILENT, Fault, Trials
from bench.steps import join, recovery_s
from daisychain.core.jobs import JobState
from rig.chain import RigChain
from rig.lan import Lan
from rig.node import RigNode
from support.waiting import until

JOB = "recovery"
SOURCE = Path(__file__).parent / "jobs" / JOB
SEED, BATCH = 7, 32

TOGETHER_S, END_S, RECOVERY_S = 60.0, 60.0, 30.0
STARTED_AGAIN = frozenset({Fault.SIGKILL_WORKER, Fault.SIGKILL_COORDINATOR, Fault.SIGTERM})
"""After these the node comes back as one that was just switched on."""

STEADY_STEPS = 20
"""Committed together before the next fault."""


class ChainUnderTest:
    """Three nodes that train one run, kept whole from one trial to the next."""

    def __init__(self, chain: RigChain, lan: Lan, names: Sequence[str]) -> None:
        self._chain = chain
        self._lan = lan
        self._end = chain.folder / "end"
        self._trial = 0
        for name in names:
            self._write_job(chain.prepare(name) / JOB)
        self._nodes = [chain.start(lan.place(name), "--min-nodes", str(len(names))) for name in names]
        self._records = {node.name: ChainRecord(node.state) for node in self._nodes}
        self._seen = {node.name: Seen() for node in self._nodes}
        self._together(0.0)

    def trial(self, fault: Fault, trials: Trials) -> None:
        """Do ``fault`` once, note how long the others took to go on, and wait until the node is back."""
        victim = self._victim(fault)
        others = [node for node in self._nodes if node is not victim]
        fault_at = self._strike(fault, victim)
        took_s = self._recovery_s(others, fault_at)
        trials.add(fault, took_s)
        self._look()
        print(f"{fault} of {victim.name}: {took_s:.3f} s", flush=True)
        started_at = time.time()
        self._bring_back(fault, victim)
        self._together(fault_at + took_s)
        if fault in STARTED_AGAIN:
            self._note_join(victim, others[0], started_at, trials)
        trials.took([line.step_s for line in self._records[others[0].name].steps()[-STEADY_STEPS:]])
        self._look()

    def end(self) -> Losses:
        """End the run, and return what of it was lost or done twice, on whichever node is worst."""
        self._end.touch()
        for node in self._nodes:
            until(lambda node=node: node.state_of(JOB) is JobState.FINISHED, END_S, f"{node.name} goes on")  # type: ignore[misc]
        self._look()
        found = []
        for node in self._nodes:
            summary = node.summary(JOB)
            audit = summary["audit"]
            unseen, twice = visits(
                node.jobs / JOB / "result" / "model.safetensors", SEED, BATCH, summary["steps"]
            )
            found.append(
                Losses(
                    len(self._seen[node.name].lost),
                    max(audit["samples_lost"], unseen),
                    max(audit["samples_repeated"], twice),
                )
            )
        return Losses(
            max(each.steps_lost for each in found),
            max(each.samples_lost for each in found),
            max(each.samples_repeated for each in found),
        )

    def _look(self) -> None:
        for node in self._nodes:
            self._seen[node.name].look(self._records[node.name].steps())

    def _write_job(self, folder: Path) -> None:
        folder.mkdir()
        code = (SOURCE / "model.py").read_text()
        (folder / "model.py").write_text(code.replace('Path("/nowhere")', f"Path({str(self._end)!r})"))
        (folder / "job.yaml").write_text((SOURCE / "job.yaml").read_text())

    def _victim(self, fault: Fault) -> RigNode:
        """Return the coordinator, or the others by turns; trainers are killed on all three by turns."""
        self._trial += 1
        if fault is Fault.SIGKILL_COORDINATOR:
            return self._chain.leader()
        if fault is Fault.SIGKILL_TRAINER:
            return self._nodes[self._trial % len(self._nodes)]
        workers = [node for node in self._nodes if not node.leads()]
        return workers[self._trial % len(workers)]

    def _strike(self, fault: Fault, victim: RigNode) -> float:
        """Do it; return Unix seconds just before."""
        strikes: dict[Fault, Callable[[], float]] = {
            Fault.SIGKILL_WORKER: victim.kill,
            Fault.SIGKILL_COORDINATOR: victim.kill,
            Fault.SIGKILL_TRAINER: victim.kill_trainer,
            Fault.LINK_CUT: lambda: self._cut(victim),
            Fault.SIGSTOP: victim.freeze,
            Fault.SIGTERM: victim.terminate,
        }
        return strikes[fault]()

    def _cut(self, victim: RigNode) -> float:
        at = time.time()
        self._lan.cut(victim.name)
        return at

    def _bring_back(self, fault: Fault, victim: RigNode) -> None:
        if fault not in SILENT:
            self._seen[victim.name].restarted()
        match fault:
            case Fault.SIGKILL_WORKER | Fault.SIGKILL_COORDINATOR:
                victim.start()
            case Fault.SIGTERM:
                until(lambda: not victim.running, 10.0, f"{victim.name} does not leave")
                victim.start()
            case Fault.SIGKILL_TRAINER:
                pass  # its agent starts another
            case Fault.LINK_CUT:
                self._lan.heal(victim.name)
            case Fault.SIGSTOP:
                victim.thaw()

    def _recovery_s(self, others: Sequence[RigNode], fault_at: float) -> float:
        """Return the seconds until all ``others`` went on in a new world."""
        found: list[float] = []

        def recovered() -> bool:
            took_s = recovery_s([self._records[node.name].steps() for node in others], fault_at)
            if took_s is not None:
                found.append(took_s)
            return bool(found)

        until(recovered, RECOVERY_S, "the others do not go on")
        return found[0]

    def _together(self, after: float) -> None:
        """Wait until every node has committed some steps after that time in one world of them all."""

        def steady() -> bool:
            tails = [self._records[node.name].steps()[-STEADY_STEPS:] for node in self._nodes]
            return (
                all(
                    len(tail) == STEADY_STEPS and tail[0].at > after and tail[0].size == len(self._nodes)
                    for tail in tails
                )
                and len({line.world for tail in tails for line in tail}) == 1
            )

        until(steady, TOGETHER_S, "they do not train together")

    def _note_join(self, joiner: RigNode, witness: RigNode, started_at: float, trials: Trials) -> None:
        record, steps = self._records[joiner.name], self._records[witness.name].steps()
        came = join(steps, len(self._nodes), started_at, record.ready_at())
        if came is not None:
            trials.joins.append(came)
            print(f"  back after {came.took_s:.3f} s, pause {came.pause_s:.3f} s", flush=True)
