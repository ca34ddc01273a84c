"""The printed lines are tried on the real program, in a namespace: they are taken as they stand."""

from __future__ import annotations

import shlex
import shutil
import subprocess

import pytest

from daisychain.runtime.firewall import Openings, firewall_lines
from support.namespaces import namespaces


def test_iptables_takes_the_lines_as_they_are_printed() -> None:
    if shutil.which("iptables") is None:
        pytest.skip("iptables is not installed")
    lines = firewall_lines(("10.9.0.2", "10.9.0.3"), Openings(7447, 32768, 60999))
    commands = [shlex.split(line) for line in lines if line.startswith("  iptables")]
    assert len(commands) == 2
    with namespaces(1) as (here,):
        for command in commands:
            done = subprocess.run(
                ["ip", "netns", "exec", here, *command], capture_output=True, text=True, check=False
            )
            if "Permission denied" in done.stderr or "Could not fetch" in done.stderr:
                pytest.skip(f"this kernel has no iptables: {done.stderr.strip()[:100]}")
            assert done.returncode == 0, done.stderr
        shown = subprocess.run(
            ["ip", "netns", "exec", here, "iptables", "-S", "INPUT"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for host in ("10.9.0.2", "10.9.0.3"):
            assert f"-s {host}/32 -p tcp -m multiport --dports 7447,32768:60999 -j ACCEPT" in shown
            assert f"-s {host}/32 -p udp -m udp --dport 5353 -j ACCEPT" in shown
