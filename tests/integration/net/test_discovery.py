"""All sources at once; none can stop another."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import pytest

from daisychain.core.events import CandidateSeen
from daisychain.core.ids import Address, ClusterId, NodeId
from daisychain.net.discovery.discovery import Discovery, DiscoverySettings
from daisychain.net.discovery.seeds import SeedSource, parse_seeds
from daisychain.net.discovery.sources import Announcement, SourceHealth, SourceState
from daisychain.net.interface_choice import InterfaceChoice, Network
from support.async_waiting import until_async
from support.stand_ins import tailscale

LOOPBACK = InterfaceChoice("lo", "127.0.0.1", 8, Network.LOOPBACK, "", ())
AS_IF_LAN = InterfaceChoice("lo", "127.0.0.1", 8, Network.LAN, "", ())


def announcement(cluster: str, port: int) -> Announcement:
    return Announcement(
        NodeId(secrets.token_hex(16)), ClusterId(cluster), Address("127.0.0.1", port), "0.1.0"
    )


def settings(folder: Path, mode: str, seeds: str = "") -> DiscoverySettings:
    folder.mkdir(exist_ok=True)
    command = (str(tailscale(folder, mode)),)
    return DiscoverySettings(seeds=parse_seeds(seeds, 7447), tailscale=command)


def state(discovery: Discovery, source: str) -> SourceState:
    return next(state for state in discovery.states() if state.source == source)


def test_every_source_yields_candidates_while_another_is_broken(tmp_path: Path) -> None:
    cluster = secrets.token_hex(8)

    async def scenario() -> None:
        seen: list[CandidateSeen] = []
        ours, theirs = announcement(cluster, 21001), announcement(cluster, 21002)
        discovery = Discovery(
            settings(tmp_path / "a", "running", "127.0.0.7:21003"), ours, AS_IF_LAN, seen.append
        )
        other = Discovery(settings(tmp_path / "b", "permission"), theirs, AS_IF_LAN, lambda _: None)
        await discovery.start()
        await other.start()
        try:
            wanted = {
                ("mdns", theirs.address),
                ("seed", Address("127.0.0.7", 21003)),
                ("tailnet", Address("100.64.0.2", 7447)),
            }
            await until_async(lambda: wanted <= {(c.source, c.address) for c in seen}, 20, "a source mute")
            await until_async(
                lambda: state(other, "tailnet").health is SourceHealth.UNAVAILABLE, 20, "no complaint"
            )
            assert "socket may not be used" in state(other, "tailnet").text
            assert state(other, "mdns").health is SourceHealth.OK
            assert state(other, "seed") == SourceState("seed", SourceHealth.OFF, "none configured")
            assert ours.address not in {candidate.address for candidate in seen}
        finally:
            await discovery.close()
            await other.close()

    asyncio.run(scenario())


def test_a_source_that_failed_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []

    async def broken(self: SeedSource, found: object, say: object) -> None:
        runs.append(self)
        raise RuntimeError("a fault of its own")

    monkeypatch.setattr(SeedSource, "run", broken)

    async def scenario() -> None:
        quick = DiscoverySettings(mdns=False, tailnet=False, seeds=parse_seeds("10.0.0.1", 1), retry_s=0.01)
        discovery = Discovery(quick, announcement("a" * 16, 21004), LOOPBACK, lambda _: None)
        await discovery.start()
        try:
            await until_async(lambda: len(runs) >= 3, 10, "not tried again")
            assert state(discovery, "seed").text == "RuntimeError: a fault of its own"
            assert state(discovery, "mdns").health is SourceHealth.OFF
        finally:
            await discovery.close()

    asyncio.run(scenario())


def test_each_network_uses_the_sources_that_can_work_there(tmp_path: Path) -> None:
    tailnet = InterfaceChoice("tailscale0", "100.64.0.1", 32, Network.TAILNET, "", ())
    ours = announcement("a" * 16, 21005)
    on_tailnet = Discovery(settings(tmp_path / "a", "running"), ours, tailnet, lambda _: None)
    assert state(on_tailnet, "mdns") == SourceState(
        "mdns", SourceHealth.OFF, "a tailnet carries no multicast"
    )
    on_loopback = Discovery(settings(tmp_path / "a", "running"), ours, LOOPBACK, lambda _: None)
    assert state(on_loopback, "tailnet").health is SourceHealth.OFF
