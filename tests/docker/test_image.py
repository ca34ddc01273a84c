"""What the image is: small, without tools to build anything, and nobody in it is root."""

from __future__ import annotations

import json

import pytest

from docker.conftest import IMAGE
from docker.engine.engine import Engine

MAX_BYTES = 750 * 1000 * 1000


def _sh(docker: Engine, command: str) -> str:
    hard = ("--read-only", "--cap-drop", "ALL", "--network", "none", "--security-opt", "no-new-privileges")
    return docker.docker("run", "--rm", *hard, "--entrypoint", "/bin/sh", IMAGE, "-c", command)


def test_the_image_is_within_its_bound(docker: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    size = int(docker.docker("image", "inspect", "--format", "{{.Size}}", IMAGE))
    with capsys.disabled():
        print(f"\n{IMAGE}: {size / 1e6:.0f} MB")
    assert size <= MAX_BYTES


def test_it_runs_as_a_plain_user_with_an_init_and_asks_the_agent_for_its_health(docker: Engine) -> None:
    config = json.loads(docker.docker("image", "inspect", "--format", "{{json .Config}}", IMAGE))
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"][0].endswith("tini")
    assert config["Healthcheck"]["Test"][-1].endswith("healthcheck.py")
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert not any("KEY" in variable for variable in config["Env"])


def test_nothing_that_builds_is_left_in_it(docker: Engine) -> None:
    assert _sh(docker, "command -v gcc cc ld strip pip pip3 make git || true") == ""
    assert "No module named pip" in _sh(docker, "/opt/daisychain/bin/python -m pip 2>&1 || true")


def test_the_command_line_and_torch_work_without_any_right(docker: Engine) -> None:
    assert _sh(docker, "daisychain --version").startswith("daisychain ")
    told = _sh(
        docker,
        "/opt/daisychain/bin/python -c 'import torch; print(torch.__version__, torch.ones(3).sum().item())'",
    )
    assert told.startswith("2.13.0") and told.endswith("3.0\n")


def test_the_health_check_fails_without_an_agent(docker: Engine) -> None:
    told = _sh(docker, "/usr/bin/python3 -IS /opt/daisychain/image/healthcheck.py; echo $?")
    assert told.startswith("the agent does not answer") and told.endswith("1\n")
