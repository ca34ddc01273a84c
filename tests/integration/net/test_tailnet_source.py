"""The tailnet through an executable that behaves as Tailscale's own does."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from daisychain.core.ids import Address
from daisychain.errors import NetworkError
from daisychain.net.discovery.sources import SourceHealth
from daisychain.net.discovery.tailnet import TailnetSettings, TailnetSource, read_tailnet
from support.async_waiting import until_async
from support.listening import running
from support.stand_ins import tailscale

QUICK = TailnetSettings(interval_s=0.1, attempts=2, retry_s=0.01, timeout_s=20.0)


def refusal(folder: Path, mode: str, settings: TailnetSettings = QUICK) -> str:
    with pytest.raises(NetworkError) as refused:
        asyncio.run(read_tailnet((str(tailscale(folder, mode)),), settings))
    return str(refused.value)


def test_the_machines_that_may_be_nodes_are_offered_again_and_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(TailnetSource((str(tailscale(tmp_path, "running")),), 7447, QUICK)) as heard:
            expected = Address("100.64.0.2", 7447)
            await until_async(lambda: heard.count(expected) >= 2, 20, "not offered twice")
            assert heard.addresses == {expected}
            assert {candidate.source for candidate in heard.candidates} == {"tailnet"}
            health, text = heard.said[-1]
            assert health is SourceHealth.OK
            assert "1 machines to dial (this user's own machines)" in text

    asyncio.run(scenario())


def test_a_warning_about_versions_is_no_part_of_the_json(tmp_path: Path) -> None:
    assert len(asyncio.run(read_tailnet((str(tailscale(tmp_path, "skew")),), QUICK)).peers) == 1


def test_a_daemon_that_is_just_starting_is_waited_for(tmp_path: Path) -> None:
    patient = TailnetSettings(attempts=3, retry_s=0.01, timeout_s=20.0)
    status = asyncio.run(
        read_tailnet((str(tailscale(tmp_path, "starting", str(tmp_path / "calls"))),), patient)
    )
    assert len(status.peers) == 1
    assert (tmp_path / "calls").read_text() == "3"


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("daemon-down", "tailscaled is not running"),
        ("permission", "socket may not be used by this user"),
        ("garbage", "printed no JSON"),
        ("crash", "exit code 2: panic: runtime error"),
        ("NeedsLogin", "logged out"),
        ("NeedsMachineAuth", "approved"),
        ("Stopped", "stopped"),
        ("NoState", "starting"),
        ("Starting", "starting"),
    ],
)
def test_each_trouble_is_told_apart(tmp_path: Path, mode: str, told: str) -> None:
    assert told in refusal(tmp_path, mode)


def test_a_tailnet_without_an_interface_is_refused_with_the_remedy(tmp_path: Path) -> None:
    async def scenario() -> None:
        await TailnetSource((str(tailscale(tmp_path, "userspace")),), 7447, QUICK).run(
            lambda _: None, lambda *_: None
        )

    with pytest.raises(NetworkError, match="TS_USERSPACE=false"):
        asyncio.run(scenario())


def test_a_hanging_program_is_killed_with_its_children(tmp_path: Path) -> None:
    started = time.monotonic()
    told = refusal(tmp_path, "hang", settings=TailnetSettings(timeout_s=1.0, attempts=1))
    assert "did not end within 1 s" in told
    assert time.monotonic() - started < 10  # what it left behind is the leak check's business


def test_endless_output_is_stopped_at_the_bound(tmp_path: Path) -> None:
    """At once, too: what was printed and not read must not keep the killed program from being seen to end."""
    bounded = TailnetSettings(timeout_s=20.0, output_bytes_max=1 << 20, attempts=1)
    for _ in range(5):
        began_at = time.monotonic()
        assert "more than 1048576 bytes" in refusal(tmp_path, "flood", settings=bounded)
        assert time.monotonic() - began_at < 10.0


def test_a_missing_program_is_told(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match="not installed"):
        asyncio.run(read_tailnet(("no-such-tailscale",), QUICK))
    with pytest.raises(NetworkError, match="cannot be run"):
        asyncio.run(read_tailnet((str(tmp_path),), QUICK))
