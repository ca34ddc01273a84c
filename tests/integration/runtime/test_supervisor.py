"""The supervisor against trainers that misbehave: whatever they do, they end and nothing remains."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from daisychain.core.ids import Generation, NodeId, RunId, Term
from daisychain.core.orders import LoadRun, PeerBlobs, Ping
from daisychain.core.reports import Pong, Report, RunFinished
from daisychain.errors import AgentError
from daisychain.runtime.supervisor import Supervisor, SupervisorSettings, TrainerEvents
from support.agent_node import is_gone
from support.async_waiting import until_async
from support.waiting import until

STAND_IN = Path(__file__).parents[2] / "support" / "stand_in_trainer.py"
RUN = RunId("0123456789abcdef-1")
ME = NodeId("a" * 32)
DEADLINE_S = 20.0


class Owner:
    """Writes down what the supervisor says."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.exits: list[str] = []
        self.changed = asyncio.Event()

    async def reported(self, run_id: RunId, report: Report) -> None:
        assert run_id == RUN
        self.reports.append(report)
        self.changed.set()

    async def exited(self, run_id: RunId, reason: str) -> None:
        assert run_id == RUN
        self.exits.append(reason)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


class Rig:
    """A supervisor over a stand-in trainer."""

    def __init__(self, mode: str, folder: Path, **bounds: float) -> None:
        self.owner = Owner()
        self.folder = folder
        shutdown_s = bounds.get("shutdown_s", 0.5)
        settings = SupervisorSettings(
            command=(sys.executable, str(STAND_IN), mode),
            interface="lo",
            shutdown_s=shutdown_s,
            unread_max_bytes=int(bounds.get("unread_max_bytes", 1 << 20)),
            log_max_bytes=int(bounds.get("log_max_bytes", 1 << 20)),
        )
        environ = {"PATH": "/usr/bin:/bin", "DAISYCHAIN_KEY_FILE": "/secret", "TS_AUTHKEY": "secret"}
        self.supervisor = Supervisor(settings, environ, TrainerEvents(self.owner.reported, self.owner.exited))

    async def start(self) -> None:
        await self.supervisor.start(LoadRun(RUN, ME, "digits", "/jobs/digits", str(self.folder)))

    async def exit_of(self) -> str:
        await self.owner.until(lambda: bool(self.owner.exits))
        return self.owner.exits[0]

    @property
    def log(self) -> str:
        file = self.folder / "train.log"
        return file.read_text() if file.exists() else ""  # its first words make it


def test_an_honest_trainer_is_heard_and_ends_when_asked(tmp_path: Path) -> None:
    async def run() -> None:
        rig = Rig("honest", tmp_path)
        await rig.start()
        rig.supervisor.tell(RUN, Ping(5))
        rig.supervisor.tell(RunId("another-1"), Ping(6))
        await rig.owner.until(lambda: len(rig.owner.reports) == 2)
        assert rig.owner.reports[0] == RunFinished(RUN, 3, 2)
        assert isinstance(rig.owner.reports[1], Pong)
        assert rig.owner.reports[1].seq == 5
        with pytest.raises(AgentError, match="still there"):
            await rig.start()
        rig.supervisor.stop(RUN, "the run ended")
        assert await rig.exit_of() == "exited with code 0 (the run ended)"
        assert rig.log == "loaded digits\nending: the run ended\n"
        await rig.start()  # the next one, in the same supervisor
        await rig.supervisor.close("leaving")
        assert rig.supervisor.run_id is None

    asyncio.run(run())


def test_the_trainer_gets_no_secret_and_the_proven_interface(tmp_path: Path) -> None:
    async def run() -> None:
        rig = Rig("honest", tmp_path)
        await rig.start()
        await rig.owner.until(lambda: bool(rig.owner.reports))
        await rig.supervisor.close("leaving")

    asyncio.run(run())
    environment = json.loads((tmp_path / "environment.json").read_text())
    assert environment["GLOO_SOCKET_IFNAME"] == "lo"
    assert not [name for name in environment if name.startswith(("DAISYCHAIN", "TS_"))]
    assert "secret" not in json.dumps(environment)


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("garbage", "killed by SIGKILL (it does not speak the protocol: a frame of"),
        ("not_a_report", "killed by SIGKILL (it does not speak the protocol: not a message"),
        ("half_frame", "killed by SIGKILL (it closed its socket and lived on)"),
        ("crash", "exited with code 7: its log has the reason"),
        ("killed", "killed by SIGKILL (out of memory?)"),
    ],
)
def test_how_a_trainer_ended_is_said_in_words(tmp_path: Path, mode: str, says: str) -> None:
    async def run() -> str:
        rig = Rig(mode, tmp_path)
        await rig.start()
        reason = await rig.exit_of()
        assert rig.supervisor.run_id is None
        return reason

    assert asyncio.run(run()).startswith(says)


def test_a_trainer_that_ignores_shutdown_is_killed_after_the_bound(tmp_path: Path) -> None:
    async def run() -> float:
        rig = Rig("deaf", tmp_path, shutdown_s=0.3)
        await rig.start()
        await rig.owner.until(lambda: bool(rig.owner.reports))
        started = asyncio.get_running_loop().time()
        await rig.supervisor.close("leaving")
        assert rig.owner.exits == ["killed by SIGKILL (leaving)"]
        return asyncio.get_running_loop().time() - started

    assert 0.3 <= asyncio.run(run()) < 3.0


def test_a_trainer_that_reads_no_orders_is_killed(tmp_path: Path) -> None:
    async def run() -> str:
        rig = Rig("reads_nothing", tmp_path, unread_max_bytes=100_000)
        await rig.start()
        order = PeerBlobs(Generation(Term(1, ME), 1, 1), (b"x" * 16_000,))
        for _ in range(200):
            rig.supervisor.tell(RUN, order)
        return await rig.exit_of()

    assert asyncio.run(run()) == "killed by SIGKILL (it reads no orders)"


def test_data_workers_end_with_their_trainer(tmp_path: Path) -> None:
    async def run() -> int:
        rig = Rig("worker", tmp_path)
        await rig.start()
        await until_async(lambda: len(rig.log.split()) > 1, DEADLINE_S, "its worker is not told")
        worker = int(rig.log.split()[1])
        rig.supervisor.kill(RUN, "stalled")
        assert await rig.exit_of() == "killed by SIGKILL (stalled)"
        return worker

    worker = asyncio.run(run())
    until(lambda: is_gone(worker), DEADLINE_S, "its worker lives")  # the kernel ends it in its own time


def test_what_a_job_prints_is_bounded(tmp_path: Path) -> None:
    async def run() -> None:
        rig = Rig("chatty", tmp_path, log_max_bytes=200_000)
        await rig.start()
        await rig.owner.until(lambda: bool(rig.owner.reports))
        await rig.supervisor.close("leaving")

    asyncio.run(run())
    sizes = {entry.name: entry.stat().st_size for entry in tmp_path.glob("train.log*")}
    assert set(sizes) == {"train.log", "train.log.1"}
    assert sum(sizes.values()) < 3 * 200_000
    assert (tmp_path / "train.log").read_text().endswith("ending: leaving\n")


def test_a_trainer_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    async def run() -> None:
        owner = Owner()
        settings = SupervisorSettings(command=("/no/such/program",))
        supervisor = Supervisor(settings, {}, TrainerEvents(owner.reported, owner.exited))
        with pytest.raises(AgentError, match="cannot be started"):
            await supervisor.start(LoadRun(RUN, ME, "digits", "/jobs/digits", str(tmp_path)))
        assert supervisor.run_id is None

    asyncio.run(run())
