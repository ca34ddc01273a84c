"""The doctor on this machine: each line is found out by trying."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from daisychain.net.identity.cluster_key import ClusterKey
from daisychain.net.interface_choice import Network
from daisychain.runtime import doctor
from daisychain.runtime.doctor import DoctorRequest, run_checks
from daisychain.runtime.doctor_rules import Check, CheckState
from support.stand_ins import stand_in, tailscale

NAMES = (
    *("platform", "interface", "hosts", "tailnet", "mdns", "port", "firewall", "clock"),
    *("memory", "disk", "gpu"),
    *("torch", "key", "sandbox", "jobs"),
)

TORCH = """
print('{"version": "2.13.0+cpu", "arch_list": [], "gloo": true}')
"""


def request(folder: Path) -> DoctorRequest:
    """Return a healthy node on the loopback, whose torch answers at once."""
    (folder / "jobs").mkdir()
    ClusterKey.generate().save(folder / "cluster.key")
    return DoctorRequest(
        state_folder=folder,
        jobs_folder=folder / "jobs",
        key_path=folder / "cluster.key",
        control_port=0,
        network=Network.LOOPBACK,
        tailscale=(str(tailscale(folder, "Stopped")),),
        nvidia_smi=("no-such-nvidia-smi",),
        python=str(stand_in(folder, "python", TORCH)),
    )


def examine(wanted: DoctorRequest) -> dict[str, Check]:
    return {check.name: check for check in asyncio.run(run_checks(wanted))}


def test_a_healthy_node_passes_every_check_by_trying_it(tmp_path: Path) -> None:
    told: list[Check] = []
    wanted = replace(request(tmp_path), python=sys.executable)
    checks = asyncio.run(run_checks(wanted, told.append))
    assert tuple(check.name for check in checks) == NAMES
    assert sorted(check.name for check in told) == sorted(NAMES)
    assert {c.name: c.text for c in checks if c.state is CheckState.PROBLEM} == {}
    report = {check.name: check for check in checks}
    assert report["interface"].text.startswith("lo 127.0.0.1: only this machine was asked for")
    assert report["mdns"].text.startswith("heard our own announcement on lo after")
    assert report["torch"].text.startswith("torch 2.")
    assert msgspec.json.decode(msgspec.json.encode(checks))[0]["name"] == "platform"


def test_asking_torch_does_not_bring_it_into_this_process() -> None:
    code = (
        "import asyncio, sys, pathlib; from daisychain.runtime.doctor import *; p = pathlib.Path('.'); "
        "asyncio.run(run_checks(DoctorRequest(p, p, p / 'k', 0, network=Network.LOOPBACK, mdns=False))); "
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )

    async def run() -> int:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
        return await process.wait()

    assert asyncio.run(run()) == 0


def test_a_port_held_by_another_is_a_problem_and_by_our_agent_is_not(tmp_path: Path) -> None:
    wanted = request(tmp_path)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        held = replace(wanted, control_port=holder.getsockname()[1], mdns=False)
        check = examine(held)["port"]
        assert check.state is CheckState.PROBLEM
        assert f"(pid {os.getpid()})" in check.text
        assert examine(replace(held, agent_running=True))["port"].state is CheckState.OK
    assert examine(held)["port"].text.endswith("is free")


def test_what_is_missing_or_broken_is_a_line_and_never_an_exception(tmp_path: Path) -> None:
    wanted = request(tmp_path)
    (tmp_path / "cluster.key").write_text("no key at all\n")
    broken = replace(
        wanted,
        jobs_folder=tmp_path / "nowhere",
        interface="eth99",
        network=Network.TAILNET,
        python=str(stand_in(tmp_path, "python2", "sys.exit('no torch here')")),
    )
    report = examine(broken)
    assert report["interface"].state is CheckState.PROBLEM and "'eth99'" in report["interface"].text
    assert report["mdns"].state is report["port"].state is CheckState.PROBLEM
    assert report["tailnet"].state is CheckState.PROBLEM and report["tailnet"].remedy == "Run `tailscale up`"
    assert report["torch"].state is CheckState.PROBLEM and "no torch here" in report["torch"].text
    assert report["key"].state is CheckState.PROBLEM
    assert report["jobs"].state is CheckState.WARNING and "mkdir -p" in report["jobs"].remedy
    assert [
        check.name for check in report.values() if check.state is not CheckState.OK and not check.remedy
    ] == []


def test_a_torch_that_dies_of_an_old_cpu_is_named(tmp_path: Path) -> None:
    body = "import os, signal, resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
    python = stand_in(tmp_path, "old", f"{body}os.kill(os.getpid(), signal.SIGILL)")
    report = examine(replace(request(tmp_path), python=str(python), mdns=False))
    assert "illegal instruction" in report["torch"].text


def test_a_check_that_hangs_becomes_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "TORCH_TIMEOUT_S", 5.5)
    python = stand_in(tmp_path, "hangs", "import signal\nsignal.pause()")
    report = examine(replace(request(tmp_path), python=str(python), mdns=False))
    assert report["torch"].state is CheckState.PROBLEM and "did not end within 0.5 s" in report["torch"].text


def test_the_tailnets_machines_are_told(tmp_path: Path) -> None:
    wanted = replace(request(tmp_path), tailscale=(str(tailscale(tmp_path, "running")),), mdns=False)
    check = examine(wanted)["tailnet"]
    # it runs, but no interface of this machine holds its address
    assert check.state is CheckState.WARNING and "without an interface" in check.text
