"""Three containers on a network of Docker's own, found by mDNS; the coordinator's container is killed."""

from __future__ import annotations

import json
import subprocess

import pytest

from docker.engine.engine import ROOT, Engine

DEMO_S = 150.0


@pytest.mark.timeout(DEMO_S + 20, func_only=True)
def test_the_demo_trains_digits_and_survives_the_kill_of_the_coordinators_container(docker: Engine) -> None:
    done = subprocess.run(
        [str(ROOT / "compose/demo.sh")],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEMO_S,
        env=docker.environment | {"COMPOSE": " ".join(docker.compose_command)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["completed"] and report["survivors_equal"]
    assert report["samples_lost"] == report["samples_repeated"] == 0
    assert report["nodes_started"] == 3 and report["world_sizes"][0] == 3 and 2 in report["world_sizes"]
    assert report["killed"].endswith("(coordinator)")
    assert report["accuracy"] > 0.9
    _nothing_left(docker)


def _nothing_left(docker: Engine) -> None:
    """`down` leaves no container, volume or network of the demo."""
    label = ("--filter", "label=com.docker.compose.project=daisychain-demo", "--quiet")
    assert docker.docker("ps", "--all", *label) == ""
    assert docker.docker("volume", "ls", *label) == ""
    assert docker.docker("network", "ls", *label) == ""
