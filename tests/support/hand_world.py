"""Real trainer processes with a hand-given world: the test plays their agents and the coordinator."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from daisychain.core.ids import Generation, RunId
from daisychain.core.orders import FormWorld, LoadRun, Order, PeerBlobs, Ping, Shutdown
from daisychain.core.reports import (
    LocalBlob,
    Pong,
    Progress,
    Report,
    RunFinished,
    TrainerReady,
    WorldFormed,
)
from daisychain.core.shares import Capacity
from daisychain.core.world import WorldPlan
from daisychain.wire.codec import ORDER_CODEC, REPORT_CODEC
from daisychain.wire.frames import FrameReader, frame
from support import plans

R = TypeVar("R")

RUN_ID = RunId("0" * 16 + "-1")
READY_S = 60.0
STEP_S = 30.0


class HandTrainer:
    """One trainer process and the agent's end of its socket pair."""

    def __init__(
        self, index: int, job_folder: Path, run_folder: Path, node: HandWorld, more: Mapping[str, str]
    ) -> None:
        self.index = index
        self.node_id = plans.node_id(index)
        self.run_folder = run_folder
        self.more = more
        self.reports: list[tuple[float, Report]] = []
        self.gone = False
        self._world = node
        ours, theirs = socket.socketpair()
        run_folder.mkdir(parents=True, exist_ok=True)
        log = (run_folder / "train.log").open("ab")
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONHASHSEED": "0",
            "GLOO_SOCKET_IFNAME": "lo",
            "PYTHONDONTWRITEBYTECODE": "1",
            **more,
        }
        with theirs, log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "daisychain.trainer", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=run_folder,
            )
        self._socket = ours
        self._thread = threading.Thread(target=self._read, name=f"agent-{index}", daemon=True)
        self._thread.start()
        folders = (job_folder.name, str(job_folder), str(run_folder))
        self.tell(LoadRun(RUN_ID, self.node_id, *folders, node.checkpoint_every_s))

    def tell(self, order: Order) -> None:
        with contextlib.suppress(OSError):  # it may have been killed: the test will see
            self._socket.sendall(frame(ORDER_CODEC.encode(order)))

    def _read(self) -> None:
        frames = FrameReader()
        while True:
            try:
                data = self._socket.recv(1 << 16)
            except OSError:
                data = b""
            at = time.monotonic()
            with self._world.changed:
                if not data:
                    self.gone = True
                else:
                    self.reports += [(at, REPORT_CODEC.decode(payload)) for payload in frames.feed(data)]
                self._world.changed.notify_all()
            if not data:
                return

    def found(self, kind: type[R], fits: Callable[[R], bool] = lambda _: True) -> list[tuple[float, R]]:
        """Return (monotonic seconds of arrival, report) of every fitting report so far."""
        return [(at, each) for at, each in self.reports if isinstance(each, kind) and fits(each)]

    def wait(
        self, kind: type[R], fits: Callable[[R], bool] = lambda _: True, timeout_s: float = STEP_S
    ) -> tuple[float, R]:
        """Return the first fitting report and when it came; the test fails past the bound."""
        self._world.wait(
            lambda: bool(self.found(kind, fits)), timeout_s, f"trainer {self.index}: {kind.__name__}", self
        )
        return self.found(kind, fits)[0]

    def ping(self, seq: int) -> Pong:
        self.tell(Ping(seq))
        return self.wait(Pong, lambda pong: pong.seq == seq)[1]

    def kill(self) -> float:
        """SIGKILL the process; return when (monotonic seconds)."""
        at = time.monotonic()
        self.process.kill()
        return at

    def freeze(self) -> float:
        """SIGSTOP the process and wait until it is stopped; return when."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)
        return time.monotonic()

    def wake(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def lines(self) -> list[dict[str, Any]]:
        """Return this node's metrics lines so far."""
        path = self.run_folder / "metrics.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def log(self) -> str:
        return (self.run_folder / "train.log").read_text(errors="replace")

    def hang_up(self) -> None:
        """Close the agent's end: as an agent's death looks to a trainer."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(10)
        self.hang_up()
        self._thread.join(10)
        self._socket.close()


class HandWorld:
    """Trainers of one job, each with a copy of the job's folder or all with the same one."""

    def __init__(self, job_folder: Path, state_folder: Path, checkpoint_every_s: float = 30.0) -> None:
        self.job_folder = job_folder
        self.checkpoint_every_s = checkpoint_every_s
        self.changed = threading.Condition()
        self.trainers: list[HandTrainer] = []
        self._state_folder = state_folder
        self._counter = 0

    def begin(self, more: Mapping[str, str] = MappingProxyType({})) -> HandTrainer:
        """Start one more trainer, with ``more`` in its environment, and do not wait for it."""
        index = len(self.trainers)
        trainer = HandTrainer(index, self.job_folder, self._state_folder / f"node{index}", self, more)
        self.trainers.append(trainer)
        return trainer

    def again(self, members: Sequence[HandTrainer]) -> list[HandTrainer]:
        """Start trainers whose processes have ended anew, from their own run folders; return them ready."""
        for member in members:
            member.close()
            self.trainers[member.index] = HandTrainer(
                member.index, self.job_folder, member.run_folder, self, member.more
            )
        started = [self.trainers[member.index] for member in members]
        for trainer in started:
            trainer.wait(TrainerReady, timeout_s=READY_S)
        return started

    def start(self, count: int = 1, more: Mapping[str, str] = MappingProxyType({})) -> list[HandTrainer]:
        """Start ``count`` more trainers, see `begin`, and wait until each is ready."""
        started = [self.begin(more) for _ in range(count)]
        for trainer in started:
            trainer.wait(TrainerReady, timeout_s=READY_S)
        return started

    def plan(self, members: Sequence[HandTrainer], capacities: Sequence[Capacity] | None = None) -> WorldPlan:
        """Return the next generation with ``members`` in rank order."""
        self._counter += 1
        return plans.plan([member.index for member in members], self._counter, RUN_ID, capacities)

    def order(self, plan: WorldPlan, members: Sequence[HandTrainer], timeout_s: float = 10.0) -> None:
        """Give ``plan`` to each of ``members``."""
        for member in members:
            member.tell(FormWorld(plan, timeout_s))

    def spread(self, generation: Generation, members: Sequence[HandTrainer], timeout_s: float = 10.0) -> None:
        """Wait for the blobs of ``members``, all of them, and give each the full list."""
        blobs = []
        for member in members:
            _, blob = member.wait(LocalBlob, lambda each: each.generation == generation, timeout_s)
            blobs.append(blob.blob)
        for member in members:
            member.tell(PeerBlobs(generation, tuple(blobs)))

    def form(
        self,
        members: Sequence[HandTrainer],
        capacities: Sequence[Capacity] | None = None,
        timeout_s: float = 10.0,
    ) -> Generation:
        """Form the next world of ``members``; return its generation once all report it formed."""
        plan = self.plan(members, capacities)
        self.order(plan, members, timeout_s)
        self.spread(plan.generation, members, timeout_s)
        for member in members:
            member.wait(WorldFormed, lambda formed: formed.generation == plan.generation, timeout_s)
        return plan.generation

    def progress(self, trainer: HandTrainer, generation: Generation, timeout_s: float = STEP_S) -> float:
        """Wait for a world's first committed step on ``trainer``; return when it was reported."""
        return trainer.wait(Progress, lambda each: each.generation == generation, timeout_s)[0]

    def progress_of(self, trainer: HandTrainer) -> Progress:
        """Return the newest step that ``trainer`` reported, waiting for its first."""
        trainer.wait(Progress)
        return trainer.found(Progress)[-1][1]

    def reach(self, trainer: HandTrainer, step: int, timeout_s: float = STEP_S) -> Progress:
        """Wait until ``trainer`` reports ``step`` or a later one."""
        return trainer.wait(Progress, lambda each: each.step >= step, timeout_s)[1]

    def finish(self, members: Sequence[HandTrainer], timeout_s: float = 60.0) -> None:
        """Wait until every one of ``members`` has finished the run."""
        for member in members:
            member.wait(RunFinished, timeout_s=timeout_s)

    def shut_down(self, members: Sequence[HandTrainer]) -> None:
        """Say Shutdown to ``members`` and see them end in good order."""
        for member in members:
            member.tell(Shutdown("the test is over"))
        for member in members:
            code = member.process.wait(10)
            assert code == 0, f"trainer {member.index} ended with {code}:\n{member.log()}"

    def wait(
        self, condition: Callable[[], bool], timeout_s: float, what: str, trainer: HandTrainer | None = None
    ) -> None:
        """Wait for a condition on reports; fail with the trainer's log past the bound or when it is gone."""
        deadline_at = time.monotonic() + timeout_s
        with self.changed:
            while not condition():
                left_s = deadline_at - time.monotonic()
                if left_s <= 0 or (trainer is not None and trainer.gone):
                    story = ""
                    if trainer is not None:
                        told = [each for _, each in trainer.reports if not isinstance(each, Progress)][-8:]
                        story = f"\nreports: {told}\nlog:\n{trainer.log()[-4000:]}"
                    why = "its trainer is gone" if left_s > 0 else f"not within {timeout_s} s"
                    raise AssertionError(f"{what}: {why}{story}")
                self.changed.wait(left_s)

    def close(self) -> None:
        for trainer in self.trainers:
            trainer.close()


@contextlib.contextmanager
def hand_world(job_folder: Path, state_folder: Path, checkpoint_every_s: float = 30.0) -> Iterator[HandWorld]:
    """Yield a world whose processes are all gone afterwards."""
    world = HandWorld(job_folder, state_folder, checkpoint_every_s)
    try:
        yield world
    finally:
        world.close()
