"""Dockerfiles, compose files and scripts: what their linters and compose itself say."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from docker.engine.engine import ROOT

COMPOSE = os.environ.get("DAISYCHAIN_TEST_COMPOSE", "docker compose").split()
COMBINATIONS = [
    ("compose.yaml",),
    ("compose.yaml", "compose/key.yaml"),
    ("compose.yaml", "compose/tailnet.yaml"),
    ("compose.yaml", "compose/host-tailnet.yaml"),
    ("compose.yaml", "compose/cuda.yaml"),
    ("compose.yaml", "compose/tailnet.yaml", "compose/cuda.yaml", "compose/key.yaml"),
    ("compose/demo.yaml",),
]


def _tool(name: str) -> str:
    """Return a linter of the tools' environment, or of the machine."""
    beside = Path(COMPOSE[0]).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: `make test-docker` sets it up")
    return found


def _clean(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=100)
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


def _config(files: tuple[str, ...], **variables: str) -> dict[str, dict[str, dict[str, object]]]:
    chosen = [part for file in files for part in ("--file", file)]
    told = subprocess.run(
        [*COMPOSE, *chosen, "--profile", "*", "config", "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        timeout=60,
        env=os.environ | variables,
    )
    config: dict[str, dict[str, dict[str, object]]] = json.loads(told.stdout)
    return config


@pytest.mark.parametrize("name", ["Dockerfile.cpu", "Dockerfile.cuda"])
def test_hadolint_finds_nothing(name: str) -> None:
    _clean(_tool("hadolint"), name)


def test_shellcheck_finds_nothing() -> None:
    scripts = sorted(str(path) for folder in ("images", "compose") for path in (ROOT / folder).glob("*.sh"))
    _clean(_tool("shellcheck"), *scripts)


def test_the_compose_files_fit_the_schema() -> None:
    files = sorted(str(path) for path in (ROOT / "compose").glob("*.yaml"))
    _clean(_tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", "compose.yaml", *files)


@pytest.mark.parametrize("files", COMBINATIONS, ids="+".join)
def test_every_combination_is_a_project_whose_nodes_are_hardened(files: tuple[str, ...]) -> None:
    services = _config(files)["services"]
    ours = {name: it for name, it in services.items() if name != "tailscale"}
    assert ours
    for name, service in ours.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["mem_limit"] and service["pids_limit"], name
        if name != "prepare":
            assert service["user"] == "10001:10001", name
            assert "cap_add" not in service, name


def test_the_networks_are_what_their_names_say() -> None:
    lan = _config(("compose.yaml",))["services"]["node"]
    assert lan["network_mode"] == "host"
    tailnet = _config(("compose.yaml", "compose/tailnet.yaml"))["services"]
    assert tailnet["node"]["network_mode"] == "service:tailscale"
    assert "sysctls" not in tailnet["node"]  # the network belongs to the other container
    assert tailnet["tailscale"]["sysctls"] == {"net.ipv4.ip_local_port_range": "49152 50175"}


def test_the_user_of_the_node_is_chosen_in_env() -> None:
    services = _config(("compose.yaml",), DAISYCHAIN_UID="1234", DAISYCHAIN_GID="2345")["services"]
    assert services["node"]["user"] == "1234:2345"
    assert services["prepare"]["command"] == ["1234", "2345"]
