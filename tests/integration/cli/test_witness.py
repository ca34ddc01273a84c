"""Whoever watches an agent sees its end at once, and no sooner."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from daisychain.cli.client import AgentClient
from daisychain.errors import AgentError
from support.waiting import until

pytestmark = pytest.mark.integration

SERVER = """
import asyncio, pathlib, sys
from daisychain.runtime.user_socket import UserSocket

async def serve():
    await UserSocket([], pathlib.Path(sys.argv[1])).start()
    await asyncio.Event().wait()

asyncio.run(serve())
"""


def test_it_outlasts_silence_and_sees_a_kill(tmp_path: Path) -> None:
    socket = tmp_path / "agent.sock"
    agent = subprocess.Popen([sys.executable, "-c", SERVER, str(socket)], stdin=subprocess.DEVNULL)
    try:
        until(socket.is_socket, 30, "the agent's socket is not there")
        with AgentClient(tmp_path).witness() as witness:
            assert not witness.gone_within(0.5)
            agent.kill()
            assert witness.gone_within(5.0)
    finally:
        agent.kill()
        agent.wait(10)


def test_an_agent_that_is_not_there_has_no_witness(tmp_path: Path) -> None:
    with pytest.raises(AgentError):
        AgentClient(tmp_path).witness()
