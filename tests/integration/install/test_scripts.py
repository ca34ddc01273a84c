"""The installers on machines of every kind; docker, uname, nvidia-smi and tailscale are stand-ins."""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
from pathlib import Path

import pytest

from daisychain.core.ids import Address, ClusterId, NodeId
from daisychain.install.choice import Wishes, choose
from daisychain.install.env_file import read_env
from daisychain.install.facts import read_facts
from daisychain.net.discovery.mdns import MdnsSource
from daisychain.net.discovery.sources import Announcement
from daisychain.net.identity.cluster_key import ClusterKey
from daisychain.net.interface_choice import InterfaceChoice, Network
from integration.install.stand_ins import REPOSITORY, StandIn
from support.listening import running

pytestmark = pytest.mark.integration

LOOPBACK = InterfaceChoice("lo", "127.0.0.1", 8, Network.LOOPBACK, "", ())

UP = '{\n  "BackendState": "Running",\n  "TUN": true,\n  "Self": {"TailscaleIPs": ["100.64.0.9"]}\n}\n'
DOWN = "echo failed to connect to local tailscaled >&2; exit 1"
PLACES = {  # what uname and docker say, the network without and with a tailnet, whether Docker gives cards
    "linux": ("Linux", "6.1.0-9-amd64", "Debian GNU/Linux 12", "lan", "host-tailnet", False),
    "desktop": ("Linux", "6.1.0-9-amd64", "Docker Desktop", "tailnet", "tailnet", False),
    "wsl": ("Linux", "5.15-microsoft-standard-WSL2", "Ubuntu 24.04", "tailnet", "tailnet", False),
    "wsl-desktop": ("Linux", "5.15-microsoft-standard-WSL2", "Docker Desktop", "tailnet", "tailnet", True),
    "macos": ("Darwin", "24.1.0", "Docker Desktop", "tailnet", "tailnet", False),
}
CARDS = {  # what nvidia-smi prints, its exit code, the build for it
    "none": (None, 0, None),
    "broken": ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", 9, None),
    "maxwell": ("NVIDIA GeForce GTX 970, 4096, 535.183.01, 5.2\n", 0, "cu126"),
    "kepler": ("Tesla K80, 11441, 470.82.01\n", 0, None),
    "blackwell": ("NVIDIA GeForce RTX 5090, 32607, 580.95.05, 12.0\n", 0, "cu130"),
}
TAILSCALES = {"absent": (None, "exit 0"), "down": ("", DOWN), "up": (UP, "exit 0")}


@pytest.mark.parametrize("place", PLACES)
def test_every_combination_is_seen_as_it_is(place: str, tmp_path: Path) -> None:
    system, kernel, docker_system, lan, tailnet, gives_cards = PLACES[place]
    for card, toolkit, tailscale in itertools.product(CARDS, (False, True), TAILSCALES):
        printed, code, build = CARDS[card]
        status, end = TAILSCALES[tailscale]
        folder = tmp_path / f"{card}-{toolkit}-{tailscale}"
        folder.mkdir()
        machine = StandIn(
            folder,
            system,
            kernel,
            docker_system,
            toolkit=toolkit,
            gpus=printed,
            smi_code=code,
            tailscale=status,
            tailscale_end=end,
            more={"PYTHON": "/bin/true"},  # only the facts are looked at here
        ).set_up()
        assert machine.run("install.sh", "--yes").returncode == 0
        choice = choose(read_facts((folder / "facts").read_text()), Wishes(), {})
        wanted = build if gives_cards or (toolkit and "Desktop" not in docker_system) else None
        assert choice.way == (tailnet if tailscale == "up" else lan), folder.name
        assert choice.cuda == wanted, folder.name
        if card == "broken" and system == "Linux":
            assert "couldn't communicate with the NVIDIA driver" in "\n".join(choice.reasons)


def test_the_first_node_makes_the_key_and_prints_the_line_for_the_others(tmp_path: Path) -> None:
    machine = StandIn(tmp_path).set_up()
    done = machine.run("install.sh", "--yes", "--name", "attic")
    assert done.returncode == 0, done.stderr
    key_file = machine.copy / "secrets" / "cluster.key"
    key = ClusterKey.load(key_file)
    assert key_file.stat().st_mode & 0o777 == 0o600
    for line in (
        "network lan: nodes on one LAN find each other",
        "variant cpu: no NVIDIA driver is installed",
        f"key: made, this is the first node of cluster {key.cluster_id}",
        "next: docker compose up --detach",
        f"  scripts/install.sh --key {key.text} && docker compose up --detach",
    ):
        assert line in done.stdout
    env = read_env((machine.copy / ".env").read_text())
    assert env["COMPOSE_FILE"] == "compose.yaml:compose/key.yaml" and env["DAISYCHAIN_NAME"] == "attic"
    if os.geteuid() == 0:  # the jobs folder is root's, so that the image's own user runs the node
        assert key_file.stat().st_uid == 10001 and "DAISYCHAIN_UID" not in env


def test_a_node_that_sees_a_chain_says_so_and_founds_none(tmp_path: Path) -> None:
    cluster = ClusterId(secrets.token_hex(8))
    neighbour = Announcement(NodeId(secrets.token_hex(16)), cluster, Address("127.0.0.1", 9), "0.1.0")
    machine = StandIn(tmp_path, interface="lo").set_up()

    async def scenario() -> None:
        async with running(MdnsSource(neighbour, LOOPBACK)):
            refused = await asyncio.to_thread(machine.run, "install.sh", "--yes")
            told = " ".join(refused.stderr.split())
            assert refused.returncode == 4
            assert "a chain is here already" in told and f"{cluster} (1 node)" in told
            assert "scripts/install.sh --key KEY" in told
            assert not (machine.copy / ".env").exists() and not (machine.copy / "secrets").exists()
            founded = await asyncio.to_thread(machine.run, "install.sh", "--yes", "--new-chain")
            assert founded.returncode == 0 and "key: made" in founded.stdout

    asyncio.run(scenario())


def test_run_again_changes_nothing_and_what_is_asked_changes(tmp_path: Path) -> None:
    machine = StandIn(tmp_path).set_up()
    assert machine.run("install.sh", "--yes").returncode == 0
    before = {path: path.read_bytes() for path in machine.copy.rglob("*") if path.is_file()}
    again = machine.run("install.sh")
    assert "key: as before" in again.stdout and ".env: as it was" in again.stdout
    assert "on every other machine" not in again.stdout
    assert {path: path.read_bytes() for path in machine.copy.rglob("*") if path.is_file()} == before
    other = ClusterKey.generate()
    assert machine.run("install.sh", "--network", "tailnet", "--key", other.text).returncode == 0
    assert ClusterKey.load(machine.copy / "secrets" / "cluster.key") == other
    assert "compose/tailnet.yaml" in (machine.copy / ".env").read_text()


@pytest.mark.parametrize(
    ("changes", "flags", "code", "told"),
    [
        ({"server": None}, (), 3, "Docker is not installed"),
        ({"server": ""}, (), 3, "Docker does not answer this user: permission denied on the socket"),
        ({"server": "19.03.1"}, (), 3, "Docker 19.3.1 is older than 20.10"),
        ({"compose": ""}, (), 3, "compose plugin is not there"),
        ({"compose": "2.3.4"}, (), 3, "compose plugin 2.3.4 is older"),
        ({}, ("--network", "moon"), 3, "Expected one of lan, tailnet, host-tailnet"),
        ({}, ("--network", "host-tailnet"), 3, "Tailscale is not installed"),
        ({}, ("--variant", "cuda"), 3, "no NVIDIA driver is installed"),
        ({}, ("--key", "ABCDE"), 4, "a cluster key has 40 characters"),
        (
            {"system": "Darwin", "docker_system": "Docker Desktop"},
            ("--network", "lan"),
            3,
            "cannot work here",
        ),
        ({}, ("--colour", "red"), 2, "--colour"),
    ],
)
def test_a_refusal_tells_why_and_writes_nothing(
    changes: dict[str, str], flags: tuple[str, ...], code: int, told: str, tmp_path: Path
) -> None:
    machine = StandIn(tmp_path, **changes).set_up()  # type: ignore[arg-type]
    done = machine.run("install.sh", "--yes", *flags)
    assert (done.returncode, told in " ".join(done.stderr.split())) == (code, True), done.stderr
    assert not (machine.copy / ".env").exists() and not (machine.copy / "secrets").exists()


def test_an_image_that_is_not_there_is_built_or_pulled(tmp_path: Path) -> None:
    for name, more in (("built", {}), ("pulled", {"DAISYCHAIN_IMAGE": "example/daisychain:1"})):
        (tmp_path / name).mkdir()
        machine = StandIn(tmp_path / name, image=False, more=more).set_up()
        assert machine.run("install.sh", "--yes").returncode == 0
        asked = machine.asked()
        built = "build --file Dockerfile.cpu --tag daisychain:cpu --quiet ." in asked
        assert (built, "pull example/daisychain:1" in asked) == (not more, bool(more))


@pytest.mark.parametrize(
    ("server", "buildx", "kit", "told"),
    [
        ("28.2.2", True, 1, ""),
        ("28.2.2", False, 0, "this Docker has no buildx: building with its old builder"),
        ("20.10.24", False, 1, ""),  # Debian 12's client has BuildKit in itself
    ],
)
def test_an_image_is_built_with_the_builder_that_is_there(
    server: str, buildx: bool, kit: int, told: str, tmp_path: Path
) -> None:
    machine = StandIn(tmp_path, server=server, buildx=buildx).set_up()
    done = machine.run("images/build.sh", "cuda", "--build-arg", "CUDA=cu130")
    assert done.returncode == 0 and done.stderr.startswith(told) and bool(done.stderr) == bool(told)
    asked = machine.asked()
    assert "build --file Dockerfile.cuda --tag daisychain:cuda --build-arg CUDA=cu130 ." in asked
    assert f"with DOCKER_BUILDKIT={kit}\n" in asked


def test_a_build_without_docker_says_what_to_do(tmp_path: Path) -> None:
    for name, server, told in (
        ("a", None, "Docker is not installed"),
        ("b", "", "does not answer this user"),
    ):
        (tmp_path / name).mkdir()
        done = StandIn(tmp_path / name, server=server).set_up().run("images/build.sh", "cpu")
        assert done.returncode == 3 and told in done.stderr and "  do: " in done.stderr


def test_uninstall_keeps_the_jobs_and_nothing_else(tmp_path: Path) -> None:
    machine = StandIn(tmp_path).set_up()
    clean = {path.relative_to(machine.copy) for path in machine.copy.rglob("*")}
    assert machine.run("install.sh", "--yes").returncode == 0
    result = machine.copy / "jobs" / "mine" / "result"
    result.mkdir(parents=True)
    unasked = machine.run("uninstall.sh")
    assert unasked.returncode == 1 and (machine.copy / ".env").exists()
    done = machine.run("uninstall.sh", "--yes")
    assert done.returncode == 0 and f"Kept: {machine.copy / 'jobs'}" in done.stdout
    assert "compose down --volumes --remove-orphans\n" in machine.asked()
    removed = [line.split()[2] for line in machine.asked().splitlines() if line.startswith("image rm ")]
    assert removed == ["daisychain:cpu", "daisychain:cuda"]  # Tailscale's own is not ours to remove
    left = {path.relative_to(machine.copy) for path in machine.copy.rglob("*")} - clean
    assert left == {Path("jobs"), Path("jobs/mine"), Path("jobs/mine/result")}


def test_an_uninstall_that_docker_refuses_can_be_run_again(tmp_path: Path) -> None:
    machine = StandIn(tmp_path, down_code=1).set_up()
    assert machine.run("install.sh", "--yes").returncode == 0
    assert machine.run("uninstall.sh", "--yes").returncode == 1
    assert (machine.copy / ".env").exists() and (machine.copy / "secrets" / "cluster.key").exists()


def test_make_node_takes_the_same_configuration(tmp_path: Path) -> None:
    machine = StandIn(tmp_path).set_up()
    assert machine.run("install.sh", "--yes", "--name", "my attic").returncode == 0
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\nfor word; do echo "$word"; done\n')
    program.chmod(0o755)
    done = machine.run("node.sh", str(program), "--port", "0")
    assert done.stdout.splitlines() == [
        "node",
        f"--jobs-folder={machine.copy}/jobs",
        f"--key-file={machine.copy}/secrets/cluster.key",
        "--network=lan",
        "--name=my attic",
        "--port",
        "0",
    ]
    machine.run("uninstall.sh", "--yes")
    assert machine.run("node.sh", str(program)).stdout.splitlines() == [
        "node",
        f"--jobs-folder={machine.copy}/jobs",
    ]


def test_the_windows_installer_decides_nothing() -> None:
    script = (REPOSITORY / "scripts" / "install.ps1").read_text()
    assert len(script.splitlines()) < 50
    assert "install-plan @flags" in script
    for decided in ("compute capability", "COMPOSE_FILE", "525", "tailnet", ".env"):
        assert decided not in "\n".join(line for line in script.splitlines() if not line.startswith("#"))
