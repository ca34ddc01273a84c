"""An agent whose network is the tailnet alone: it waits for tailscale0, leaves with it and comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from daisychain.cli.client import AgentClient
from daisychain.errors import AgentError, ProtocolError
from daisychain.runtime.agent_status import AgentStatus
from support.fake_tailscale import LOGIN_PAGE
from support.namespaces import cable, ip, namespaces
from support.stand_ins import tailscale
from support.waiting import until

UP_S = 40.0
"""Two looks at the addresses, the pause before an agent begins anew, a daemon asked three times."""


class TailnetNode:
    """One agent in a namespace of its own, as its user sees it."""

    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.state = folder / "state"
        self.log = folder / "stderr"
        self._client = AgentClient(self.state)

    def status(self) -> AgentStatus | None:
        """Return its status; None while it has none to give."""
        try:
            return self._client.status()
        except (AgentError, ProtocolError):
            return None

    def waits_for(self, words: str, remedy: str) -> bool:
        """Whether it says for people that it waits for the tailnet, why, and what to do."""
        try:
            self._client.status()
        except (AgentError, ProtocolError) as refused:
            told = refused.message
            return "this node waits for the tailnet" in told and words in told and remedy in refused.remedy
        return False

    def runs_on(self, host: str) -> bool:
        """Whether it runs over tailscale0 with this address."""
        status = self.status()
        return status is not None and status.interface == "tailscale0" and status.view.me.address.host == host


@contextmanager
def tailnet_node(folder: Path, namespace: str) -> Iterator[TailnetNode]:
    """Run an agent in ``namespace`` whose Tailscale is the program in ``folder``."""
    environ = {**os.environ, "DAISYCHAIN_TAILSCALE": str(folder / "tailscale")}
    arguments = ["--network", "tailnet", "--state-folder", str(folder / "state")]
    arguments += ["--jobs-folder", str(folder / "jobs")]
    command = ["ip", "netns", "exec", namespace, sys.executable, "-m", "daisychain.cli", "node", *arguments]
    with (folder / "stderr").open("w") as log:
        process = subprocess.Popen(command, env=environ, stdout=log, stderr=log, text=True)
    try:
        yield TailnetNode(folder, process)
    finally:
        process.kill()
        process.wait(10)


@pytest.mark.long
@pytest.mark.timeout(180)
def test_it_waits_for_the_login_leaves_when_tailscale0_vanishes_and_returns(tmp_path: Path) -> None:
    with namespaces(2) as (here, there):
        tailscale(tmp_path, "NeedsLogin")
        with tailnet_node(tmp_path, here) as node:
            until(lambda: node.waits_for("needs a login", LOGIN_PAGE), UP_S, "it says nothing of a login")
            cable((here, "tailscale0", "100.64.0.1/32"), (there, "peer0", ""))
            ip(f"-n {here} link set tailscale0 mtu 1280")
            tailscale(tmp_path, "running")
            until(lambda: node.runs_on("100.64.0.1"), UP_S, "it does not start on tailscale0")

            tailscale(tmp_path, "Stopped")
            ip(f"-n {here} link del tailscale0")
            until(lambda: node.waits_for("is stopped", "tailscale up"), UP_S, "it does not wait again")
            cable((here, "tailscale0", "100.64.0.9/32"), (there, "peer0", ""))
            until(lambda: node.runs_on("100.64.0.9"), UP_S, "it does not return with its new address")

            node.process.send_signal(signal.SIGTERM)
            assert node.process.wait(10) == 0
            log = node.log.read_text()
            assert "waiting for the tailnet: this machine needs a login" in log
            assert "tailscale0 has lost the address 100.64.0.1" in log
            assert "Traceback" not in log


@pytest.mark.parametrize(
    ("mode", "words", "remedy"),
    [
        ("Stopped", "Tailscale is stopped", "tailscale up"),
        ("daemon-down", "tailscaled is not running", "systemctl start tailscaled"),
        ("permission", "may not be used by this user", "operator"),
        ("userspace", "userspace mode", "TS_USERSPACE=false"),
        ("running", "no interface fits the network 'tailnet'", "Start Tailscale"),
    ],
)
def test_whoever_asks_is_told_what_it_waits_for_and_it_leaves_at_once(
    tmp_path: Path, mode: str, words: str, remedy: str
) -> None:
    with namespaces(1) as (here,):
        tailscale(tmp_path, mode)
        with tailnet_node(tmp_path, here) as node:
            until(lambda: node.waits_for(words, remedy), UP_S, f"it does not say: {words}")
            node.process.send_signal(signal.SIGTERM)
            assert node.process.wait(10) == 0
            assert not (node.state / "agent.sock").exists()
