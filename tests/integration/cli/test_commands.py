"""The commands as a person runs them: what they print, and their exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from daisychain.core.jobs import JobState
from support.agents import Chain, chain
from support.waiting import until

TABLE = (
    "kind: table\ndata: rows.csv\ntarget: y\ntask: classification\n"
    "global_batch_size: 16\nepochs: 2\nhidden: [8]\n"
)


class Shell:
    """Runs `daisychain ...` on one state folder and jobs folder."""

    def __init__(self, state: Path, jobs: Path) -> None:
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(state.parent),
            "DAISYCHAIN_STATE_FOLDER": str(state),
            "DAISYCHAIN_JOBS_FOLDER": str(jobs),
            "DAISYCHAIN_NETWORK": "loopback",
        }

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "daisychain.cli", *arguments],
            capture_output=True,
            text=True,
            env=self._environment,
            timeout=90,
            check=False,
        )
        assert "\x1b" not in done.stdout + done.stderr, "colours though it is no terminal"
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def json(self, *arguments: str) -> Any:
        done = self(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("\n") == 1
        return json.loads(done.stdout)


@pytest.fixture
def alone(tmp_path: Path) -> Shell:
    """A shell on a machine without an agent."""
    (tmp_path / "jobs").mkdir()
    return Shell(tmp_path / "state", tmp_path / "jobs")


def write_table(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "job.yaml").write_text(TABLE)
    rows = [
        f"{n % 7},{n % 3},{'odd' if n % 2 else 'even'},{'yes' if n % 7 > 3 else 'no'}" for n in range(200)
    ]
    (folder / "rows.csv").write_text("a,b,c,y\n" + "\n".join(rows) + "\n")
    return folder


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["status"], 8, "no agent runs on the state folder"),
        (["jobs", "--json"], 8, "daisychain node"),
        (["submit", "digits"], 8, "no agent runs"),
        (["cancel", "digits"], 8, "no agent runs"),
        (["retry", "digits"], 8, "no agent runs"),
        (["pause", "digits"], 8, "no agent runs"),
        (["resume", "digits"], 8, "no agent runs"),
        (["logs", "digits"], 8, "no agent runs"),
        (["run", "nothing"], 7, "nothing"),
        (["predict", "nothing", "rows.csv"], 7, "no such folder"),
        (["key", "show"], 4, "there is no cluster key"),
        (["key", "join", "AAAAA-BBBBB"], 4, "key"),
        (["node", "--port", "70000"], 3, "--port"),
        (["node", "--interface", "no-such-card"], 5, "no-such-card"),
        (["dance"], 2, "No such command"),
        (["submit"], 2, "Missing argument"),
    ],
)
def test_errors_have_their_code_and_say_what_to_do(
    alone: Shell, arguments: list[str], code: int, says: str
) -> None:
    done = alone(*arguments)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert done.stdout == "" or arguments[0] == "node"


def test_help_and_version_need_no_torch(alone: Shell) -> None:
    done = alone("--help")
    assert done.returncode == 0
    for command in (
        "node",
        "run",
        "submit",
        "jobs",
        "status",
        "logs",
        "cancel",
        "retry",
        "pause",
        "resume",
        "predict",
        "doctor",
        "key",
    ):
        assert command in done.stdout
    assert alone("--version").stdout.startswith("daisychain 0.")
    code = "import sys, daisychain.cli.main, daisychain.app; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_keys_are_made_shown_joined_and_rotated(alone: Shell, tmp_path: Path) -> None:
    made = alone.json("key", "new")
    assert alone("key", "new").returncode == 4
    shown = alone("key", "show")
    assert f"daisychain key join {made['key']}" in shown.stdout
    other = Shell(tmp_path / "other", tmp_path / "jobs")
    assert other.json("key", "join", made["key"]) == {"cluster_id": made["cluster_id"]}
    assert other.json("key", "show") == made
    rotated = alone("key", "rotate")
    assert f"cluster {made['cluster_id']} is left behind" in rotated.stdout
    assert alone.json("key", "show")["cluster_id"] != made["cluster_id"]
    assert (tmp_path / "state" / "cluster.key").stat().st_mode & 0o077 == 0


def test_run_trains_alone_and_predict_uses_the_result(alone: Shell, tmp_path: Path) -> None:
    folder = write_table(tmp_path / "jobs" / "parity")
    answer = alone.json("run", "parity")
    assert answer["run_id"].endswith("-1")
    summary = json.loads((folder / "result" / "summary.json").read_text())
    assert summary["run_id"] == answer["run_id"]
    predicted = alone.json("predict", "parity", str(folder / "rows.csv"), "--out", str(tmp_path / "out.csv"))
    assert predicted == {"rows": 200, "out": str(tmp_path / "out.csv")}
    assert (tmp_path / "out.csv").read_text().splitlines()[0] == "a,b,c,y,prediction,probability"
    assert alone.json("run", str(folder))["run_id"].endswith("-2")


def test_run_names_file_and_line_of_a_job_that_fails(alone: Shell, tmp_path: Path) -> None:
    folder = write_table(tmp_path / "jobs" / "parity")
    (folder / "job.yaml").write_text(TABLE.replace("target: y", "target: z"))
    done = alone("run", "parity")
    assert done.returncode == 7
    assert "rows.csv" in done.stderr or "job.yaml" in done.stderr
    assert "'z'" in done.stderr
    (folder / "job.yaml").write_text(TABLE + "epoch: 3\n")
    done = alone("run", "parity")
    assert done.returncode == 7
    assert "epoch" in done.stderr


def test_ctrl_c_ends_a_run_and_its_trainer(tmp_path: Path) -> None:
    agents = Chain(tmp_path)
    folder = agents.write_job("ada", epochs=1000)
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "daisychain.cli",
                "run",
                str(folder),
                "--state-folder",
                str(tmp_path / "state"),
            ],
            stdout=log,
            stderr=log,
        )
    logs = tmp_path / "state" / "runs"
    until(
        lambda: any("world" in path.read_text() for path in logs.glob("*/train.log")),
        60.0,
        "it does not train",
    )
    trainers = psutil.Process(process.pid).children()
    process.send_signal(signal.SIGINT)
    assert process.wait(10.0) == 130
    assert (tmp_path / "log").read_text() == "interrupted\n"
    assert len(trainers) == 1
    assert not trainers[0].is_running()
    assert not (folder / "result").exists()


@pytest.mark.long
def test_the_life_of_a_job_through_the_commands(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        node = agents.start("ada")
        shell = Shell(node.state, node.jobs)
        assert "no jobs" in shell("jobs").stdout
        source = write_table(tmp_path / "elsewhere" / "parity")
        submitted = shell("submit", str(source))
        assert submitted.returncode == 0, submitted.stderr
        assert "parity (run " in submitted.stdout
        until(lambda: node.state_of("parity") is JobState.FINISHED, 60.0, "it does not finish")
        assert [card["state"] for card in shell.json("jobs")] == ["finished"]
        again = shell("submit", "parity")
        assert again.returncode == 0
        assert "queued: parity" in again.stdout
        until(lambda: len(node.client.jobs()) == 2, 10.0, "the new run is unknown")
        until(
            lambda: all(card.state is JobState.FINISHED for card in node.client.jobs()), 60.0, "not trained"
        )
        assert "finished" in shell("logs", "parity").stdout

        agents.write_job("ada", epochs=1000)
        until(
            lambda: node.step() > 0 and node.state_of("counting") is JobState.RUNNING, 60.0, "it does not run"
        )
        status = shell("status")
        assert "coordinator: ada" in status.stdout
        assert "counting" in status.stdout
        assert shell.json("status")["view"]["me"]["name"] == "ada"
        assert "already running: counting" in shell("submit", "counting").stdout
        assert shell("retry", "counting").returncode == 8
        assert "paused: counting" in shell("pause", "counting").stdout
        until(lambda: node.trainer_pid is None, 10.0, "the trainer goes on")
        assert node.state_of("counting") is JobState.PAUSED
        assert "paused by the user" in shell("jobs").stdout
        assert shell("pause", "counting").returncode == 8
        reached = max(card.step for card in node.client.jobs() if card.name == "counting")
        assert "resumed: counting" in shell("resume", "counting").stdout
        until(lambda: node.step() > reached, 60.0, "it does not go on from where it was")
        assert shell("submit", "nothing").returncode == 7
        assert "cancelled: counting" in shell("cancel", "counting").stdout
        until(lambda: node.state_of("counting") is JobState.CANCELLED, 10.0, "it is not cancelled")
        until(lambda: node.trainer_pid is None, 10.0, "the trainer goes on")
        assert shell("cancel", "counting").returncode == 8
        retried = shell("retry", "counting").stdout
        assert retried.startswith("queued again: counting")
        assert "-2)" in retried
        until(
            lambda: node.step() > 0 and node.state_of("counting") is JobState.RUNNING, 60.0, "it is not tried"
        )
        assert shell("cancel", "counting").returncode == 0
        assert shell("logs", "counting", "--follow").returncode == 0
        assert shell("logs", "nothing").returncode == 8


def test_a_bad_job_is_shown_with_its_reason_and_cannot_be_submitted(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        folder = write_table(agents.prepare("ada") / "parity")
        (folder / "job.yaml").write_text(TABLE + "epoch: 3\n")
        node = agents.start("ada")
        shell = Shell(node.state, node.jobs)
        until(lambda: node.state_of("parity") is JobState.FAILED, 15.0, "the bad job is not seen")
        assert "epoch" in shell("jobs").stdout
        refused = shell("submit", "parity")
        assert refused.returncode == 8
        assert "epoch" in refused.stderr


@pytest.mark.long
def test_a_deleted_folder_withdraws_its_run_on_every_node_and_put_back_it_is_a_new_one(
    tmp_path: Path,
) -> None:
    with chain(tmp_path) as agents:
        for name in ("ada", "bob"):
            agents.write_job(name, epochs=1000)
        ada, bob = agents.start("ada", "--min-nodes", "2"), agents.start("bob", "--min-nodes", "2")
        until(lambda: ada.world_size() == 2 and bob.world_size() == 2, 60.0, "they do not train together")
        (ada.jobs / "counting").rename(tmp_path / "aside")
        for node in (ada, bob):
            until(lambda node=node: node.state_of("counting") is JobState.WITHDRAWN, 20.0, "it goes on")  # type: ignore[misc]
            until(lambda node=node: node.trainer_pid is None, 10.0, "its trainer goes on")  # type: ignore[misc]
        (card,) = bob.client.jobs()
        assert card.reason == "its folder jobs/counting was deleted on ada"
        (tmp_path / "aside").rename(ada.jobs / "counting")
        for node in (ada, bob):
            until(lambda node=node: node.state_of("counting") is JobState.RUNNING, 60.0, "it is not tried")  # type: ignore[misc]
        assert {card.run_id[-2:] for card in bob.client.jobs()} == {"-1", "-2"}


def test_doctor_reports_each_line_and_its_state(alone: Shell) -> None:
    done = alone("doctor")
    assert done.returncode in (0, 11)
    assert "interface" in done.stdout
    report = json.loads(alone("doctor", "--json").stdout)
    assert {check["state"] for check in report["checks"]} <= {"ok", "warning", "problem"}
    assert {"interface", "torch", "memory"} <= {check["name"] for check in report["checks"]}
