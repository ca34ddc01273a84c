"""`daisychain demo`: what the README promises, with real agents, trainers and deaths."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from daisychain.cli.demo.story import DemoReport
from daisychain.cli.exits import Exit
from support.waiting import until

JOBS = Path(__file__).parents[3] / "jobs"
RECOVERY_S = 1.0
ACCURACY = 0.95
DEMO_S = 240.0

pytestmark = [pytest.mark.integration, pytest.mark.timeout(DEMO_S + 30)]


def demo(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "daisychain.cli", "demo", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEMO_S, check=False)


def report_of(ended: subprocess.CompletedProcess[str]) -> DemoReport:
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return msgspec.json.decode(ended.stdout.splitlines()[-1], type=DemoReport)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kill", "job"), [("coordinator", "digits"), ("worker", "digits"), ("coordinator", "digits-cnn")]
)
def test_a_death_costs_less_than_a_second_and_not_one_bit(kill: str, job: str) -> None:
    options = ("--nodes", "3", "--kill", kill, "--job", str(JOBS / job), "--verify", "--json")
    report = report_of(demo(*options))
    assert report.completed
    assert (report.samples_lost, report.samples_repeated) == (0, 0)
    assert report.nodes_started == 3
    assert report.world_sizes[0] == 3
    assert report.world_sizes[-1] == 2
    assert report.recovery_s is not None
    assert report.recovery_s <= RECOVERY_S
    assert report.coordinator_changes == (1 if kill == "coordinator" else 0)
    assert report.accuracy is not None
    assert report.accuracy >= ACCURACY
    assert len(report.shares) == 3
    assert all(units > 0 for units in report.shares.values())
    assert report.survivors_equal
    assert report.bit_identical
    assert report.max_relative_difference == 0.0


@pytest.mark.long
def test_without_a_death_one_world_trains_to_the_end() -> None:
    report = report_of(demo("--nodes", "2", "--kill", "none", "--job", str(JOBS / "digits"), "--json"))
    assert report.completed
    assert report.killed is None
    assert report.recovery_s is None
    assert report.world_sizes == (2,)
    assert sum(report.shares.values()) == 128
    assert all(units > 0 for units in report.shares.values())


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (("--job", "nowhere"), Exit.JOB, "there is no job.yaml"),
        (("--nodes", "1", "--kill", "worker"), Exit.CONFIG, "Nobody would be left"),
    ],
)
def test_a_wrong_wish_is_one_line_with_a_remedy(options: tuple[str, ...], code: Exit, told: str) -> None:
    ended = demo(*options)
    assert ended.returncode == code
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_job_that_cannot_be_trained_ends_the_demo_with_its_reason(tmp_path: Path) -> None:
    job = tmp_path / "broken"
    job.mkdir()
    (job / "job.yaml").write_text(
        "kind: table\ndata: absent.csv\ntarget: y\ntask: regression\nglobal_batch_size: 8\nepochs: 1\n"
    )
    ended = demo("--job", str(job), "--nodes", "2", "--kill", "none")
    assert ended.returncode == Exit.JOB
    assert "absent.csv" in ended.stderr


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for a Unix socket's name."""
    with tempfile.TemporaryDirectory(prefix="dc-") as name:
        yield Path(name)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_however_a_demo_is_ended_it_leaves_nothing_behind(short_folder: Path, how: signal.Signals) -> None:
    command = [sys.executable, "-m", "daisychain.cli", "demo", "--nodes", "2", "--job", str(JOBS / "digits")]
    environ = {**os.environ, "TMPDIR": str(short_folder)}
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environ
    ) as process:
        until(
            lambda: (
                process.poll() is not None
                or len(list(short_folder.glob("daisychain-demo-*/*/state/agent.sock"))) == 2
            ),
            DEMO_S,
            "the demo does not start its nodes",
        )
        process.send_signal(how)
        _, said = process.communicate(timeout=DEMO_S)
    assert (process.returncode, said.strip()) == (Exit.INTERRUPTED, "interrupted")
    assert list(short_folder.glob("daisychain-demo-*")) == []
