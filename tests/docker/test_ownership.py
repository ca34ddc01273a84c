"""Whose the results are: of the user who dropped the job, whoever the node runs as."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from docker.engine.engine import ROOT, Engine
from support.waiting import until

USER = 1234
TRAIN_S = 80.0
STOP_S = 8.0
"""The five seconds of the compose file, and what compose itself takes on a busy machine."""


@contextmanager
def _node(docker: Engine, jobs: Path, **variables: str) -> Iterator[dict[str, str]]:
    """Run the repository's own compose file, on the loopback interface alone."""
    settings = {"DAISYCHAIN_JOBS": str(jobs), "DAISYCHAIN_INTERFACE": "lo", "DAISYCHAIN_PORT": "0"}
    settings |= {"COMPOSE_PROJECT_NAME": "daisychain-owners"} | variables
    docker.compose(settings, "up", "--detach", "--no-build")
    try:
        yield settings
    finally:
        docker.compose(settings, "down", "--volumes")


@pytest.fixture
def jobs() -> Iterator[Path]:
    """Give a jobs folder of an ordinary user, with a short job in it, where that user can get at it."""
    with tempfile.TemporaryDirectory(prefix="daisychain-jobs-") as name:
        Path(name).chmod(0o755)
        folder = Path(name, "jobs")
        shutil.copytree(ROOT / "jobs/digits", folder / "digits", ignore=shutil.ignore_patterns("result"))
        for path in (folder, folder / "digits", *(folder / "digits").iterdir()):
            os.chown(path, USER, USER)
        yield folder


def _await_result(jobs: Path) -> Path:
    summary = jobs / "digits/result/summary.json"
    until(summary.exists, TRAIN_S, "the node has not trained the job")
    return summary.parent


@pytest.mark.timeout(150, func_only=True)
def test_results_belong_to_the_user_that_env_names_and_the_node_leaves_within_its_grace(
    docker: Engine, jobs: Path
) -> None:
    with _node(docker, jobs, DAISYCHAIN_UID=str(USER), DAISYCHAIN_GID=str(USER)) as settings:
        result = _await_result(jobs)
        assert {path.stat().st_uid for path in (result, *result.iterdir())} == {USER}
        until(lambda: "(healthy)" in docker.compose(settings, "ps"), 40, "the health check asks the agent")
        started = time.monotonic()
        docker.compose(settings, "stop")
        assert time.monotonic() - started < STOP_S
        assert "left: its user stopped it" in docker.compose(settings, "logs", "node")


@pytest.mark.timeout(150, func_only=True)
def test_without_a_word_the_node_is_10001_and_whoever_dropped_the_job_may_do_anything_with_its_results(
    docker: Engine, jobs: Path
) -> None:
    with _node(docker, jobs):
        result = _await_result(jobs)
        assert result.stat().st_uid == 10001
        _as_the_user("cat", *map(str, result.iterdir()))
        _as_the_user("rm", "-r", str(result))


def _as_the_user(*command: str) -> None:
    subprocess.run(
        command, user=USER, group=USER, extra_groups=[], cwd="/", timeout=20, check=True, capture_output=True
    )
