"""Trials of one competitor: the same faults on the same rig as DaisyChain's, read from its step logs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.faults import SILENT, Fault, Trials
from bench.peers.processes import PeerNode
from bench.peers.system import Seat, System
from bench.steps import join, recovery_s
from rig.lan import Lan
from support.waiting import until

TOGETHER_S = 60.0
STARTS_MAX = 3
STEADY_STEPS = 20
"""Committed together before the next fault."""


@dataclass(frozen=True)
class PeerCounts:
    """How often a competitor is tried.

    Attributes:
        kills, silences: trials of each fault that is heard of at once, and of each silent one.
        none_after_s: a chain that has committed nothing for so long does not recover by itself; such a fault
            is tried no second time.
    """

    kills: int
    silences: int
    none_after_s: float


class PeerChain:
    """A competitor's chain on the LAN, kept whole from one trial to the next."""

    def __init__(self, system: System, lan: Lan, names: Sequence[str], folder: Path, job: Path) -> None:
        self._system = system
        self._lan = lan
        self._whole = False
        places = [lan.place(name) for name in names]
        hosts = folder / "hosts"
        lines = ["127.0.0.1 localhost", *(f"{place.address} {place.name}" for place in places)]
        hosts.write_text("\n".join(lines) + "\n")
        self._nodes = []
        for number, place in enumerate(places):
            seat = Seat(
                number=number,
                name=place.name,
                address=place.address,
                host=places[0].address,
                nodes=len(names),
                folder=folder / place.name,
                job=job,
                hosts=hosts,
            )
            self._nodes.append(PeerNode(system, seat, place))

    def start(self) -> None:
        """Start every node and wait until they train together."""
        for node in self._nodes:
            node.start()
        self._together(self._nodes)
        self._whole = True

    def close(self) -> None:
        """End every process."""
        for node in self._nodes:
            node.end()

    def trials(self, counts: PeerCounts) -> Trials:
        """Return what so many trials gave. The host is killed last: the chain may not outlive it."""
        trials = Trials()
        faults = sorted(Fault, key=Fault.SIGKILL_COORDINATOR.__eq__)
        if self._system.one_process:
            faults.remove(Fault.SIGKILL_TRAINER)  # the same as the whole node
        for fault in faults:
            for _ in range(counts.silences if fault in SILENT else counts.kills):
                if not self._whole and not self._start_anew(trials):
                    return trials
                if not self._trial(fault, trials, counts.none_after_s):
                    break
        return trials

    def _start_anew(self, trials: Trials) -> bool:
        """Start the whole chain; one that does not come together is given a few chances."""
        for _ in range(STARTS_MAX):
            self.close()
            try:
                self.start()
            except AssertionError as error:
                print(f"{self._system.name}: {error}", flush=True)
                trials.stuck += 1
            else:
                return True
        return False

    def _trial(self, fault: Fault, trials: Trials, none_after_s: float) -> bool:
        """Do ``fault`` once, note how long the others took to go on, and make the chain whole again.

        Returns False when they did not go on: nobody is left to join.
        """
        victim = self._nodes[0] if fault is Fault.SIGKILL_COORDINATOR else self._nodes[-1]
        others = [node for node in self._nodes if node is not victim]
        fault_at = time.time()
        self._strike(fault, victim)
        took_s = self._recovery_s(others, fault_at, none_after_s)
        trials.add(fault, took_s)
        print(f"{self._system.name}: {fault}: {'none' if took_s is None else round(took_s, 3)}", flush=True)
        victim.end()
        if fault is Fault.LINK_CUT:
            self._lan.heal(victim.seat.name)
        self._whole = took_s is not None
        if not self._whole:
            return False
        victim.start()
        try:
            self._together(self._nodes)
        except AssertionError as error:  # its fault, not the benchmark's: the chain is started anew
            print(f"{self._system.name}: after {fault} {error}", flush=True)
            trials.stuck += 1
            self._whole = False
            return True
        came = join(others[0].log.steps, len(self._nodes), victim.started_at, victim.log.ready_at)
        if came is not None:
            trials.joins.append(came)
        trials.took([line.step_s for line in others[0].log.steps[-STEADY_STEPS:]])
        return True

    def _strike(self, fault: Fault, victim: PeerNode) -> None:
        strikes: dict[Fault, Callable[[], None]] = {
            Fault.SIGKILL_WORKER: victim.kill,
            Fault.SIGKILL_COORDINATOR: victim.kill,
            Fault.SIGKILL_TRAINER: victim.kill_trainer,
            Fault.LINK_CUT: lambda: self._lan.cut(victim.seat.name),
            Fault.SIGSTOP: victim.freeze,
            Fault.SIGTERM: victim.terminate,
        }
        strikes[fault]()

    @staticmethod
    def _recovery_s(others: Sequence[PeerNode], fault_at: float, none_after_s: float) -> float | None:
        """Return the seconds until all ``others`` went on in a new world; None when they do not."""
        deadline_at = time.monotonic() + none_after_s
        while time.monotonic() < deadline_at:
            took_s = recovery_s([node.log.read() for node in others], fault_at)
            if took_s is not None:
                return took_s
            time.sleep(0.02)
        return None

    def _together(self, nodes: Sequence[PeerNode]) -> None:
        """Wait until each node has committed some steps in a world of them all since its last start."""
        since = max(node.started_at for node in nodes)

        def steady(node: PeerNode) -> bool:
            last = node.log.read()[-STEADY_STEPS:]
            return (
                len(last) == STEADY_STEPS
                and last[0].at > since
                and len({line.world for line in last}) == 1
                and last[-1].size == len(nodes)
            )

        try:
            until(lambda: all(steady(node) for node in nodes), TOGETHER_S, "they do not train together")
        except AssertionError as error:
            tails = "\n".join(f"--- {node.seat.name}\n{node.tail()}" for node in nodes)
            raise AssertionError(f"{error}\n{tails}") from None
