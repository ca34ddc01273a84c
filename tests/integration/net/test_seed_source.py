"""Seeds are offered, names among them; a resolver that hangs holds nobody up."""

from __future__ import annotations

import asyncio
import threading

import pytest

from daisychain.core.ids import Address
from daisychain.net.discovery import seeds
from daisychain.net.discovery.seeds import SeedSettings, SeedSource, parse_seeds
from daisychain.net.discovery.sources import SourceHealth
from support.async_waiting import until_async
from support.listening import running

QUICK = SeedSettings(interval_s=0.05, resolve_timeout_s=0.2)


def test_addresses_and_names_are_offered_again_and_again() -> None:
    async def scenario() -> None:
        patient = SeedSettings(interval_s=0.05, resolve_timeout_s=20.0)
        source = SeedSource(parse_seeds("127.0.0.9:7001,localhost:7002", 7447), patient)
        async with running(source) as heard:
            await until_async(lambda: heard.count(Address("127.0.0.9", 7001)) >= 2, 10, "numeric")
            await until_async(lambda: heard.count(Address("127.0.0.1", 7002)) >= 2, 10, "localhost")
            assert heard.said[-1] == (SourceHealth.OK, "2 configured")

    asyncio.run(scenario())


def test_a_name_that_does_not_resolve_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> list[str]:
        raise OSError(-2, "Name or service not known")

    monkeypatch.setattr(seeds, "resolve", unknown)

    async def scenario() -> None:
        async with running(SeedSource(parse_seeds("nobody.invalid", 7447), QUICK)) as heard:
            await until_async(lambda: bool(heard.said), 10, "nothing said")
            health, text = heard.said[-1]
            assert health is SourceHealth.UNAVAILABLE
            assert "nobody.invalid (Name or service not known)" in text

    asyncio.run(scenario())


def test_a_resolver_that_hangs_delays_nobody_and_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    release, asked = threading.Event(), []

    def resolve(name: str) -> list[str]:
        asked.append(name)
        if name == "slow.invalid":
            release.wait(60)
        return [f"10.0.0.{i}" for i in range(1, 50)]

    monkeypatch.setattr(seeds, "resolve", resolve)

    async def scenario() -> None:
        source = SeedSource(parse_seeds("127.0.0.9,slow.invalid,quick.invalid", 7447), QUICK)
        async with running(source) as heard:
            await until_async(lambda: heard.count(Address("127.0.0.9", 7447)) >= 5, 10, "numeric held up")
            await until_async(lambda: heard.count(Address("10.0.0.1", 7447)) >= 2, 10, "a name held up")
            assert "slow.invalid (no answer within 0.2 s)" in heard.last
            assert asked.count("slow.invalid") == 1
            assert len(heard.addresses) == 1 + seeds.NAME_ADDRESSES_MAX
            release.set()
            before = asked.count("slow.invalid")
            await until_async(lambda: asked.count("slow.invalid") > before, 10, "never asked again")

    try:
        asyncio.run(scenario())
    finally:
        release.set()
