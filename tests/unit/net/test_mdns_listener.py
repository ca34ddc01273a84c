"""Who said goodbye is no neighbour any more, whatever answer was still on its way."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from zeroconf import ServiceStateChange, Zeroconf

from daisychain.core.events import CandidateSeen
from daisychain.core.ids import Address, ClusterId, NodeId
from daisychain.net.discovery import mdns_listener
from daisychain.net.discovery.mdns_listener import MdnsListener, MdnsSettings
from daisychain.net.discovery.mdns_record import SERVICE_TYPE, service_name
from daisychain.net.discovery.sources import Announcement
from daisychain.net.interface_choice import InterfaceChoice, Network

ME, THEM = NodeId("a" * 32), NodeId("b" * 32)
CLUSTER = ClusterId("c" * 16)
LOOPBACK = InterfaceChoice("lo", "127.0.0.1", 8, Network.LOOPBACK, "", ())
NAME = service_name(THEM)


class Info:
    """Stands for zeroconf's details of a service: they come when the test says so."""

    known: set[str]
    asked: asyncio.Event
    answer: asyncio.Event

    def __init__(self, service_type: str, name: str) -> None:
        self.name = name
        self.port = 7447 if name == NAME else 7448
        node = THEM if name == NAME else ME
        self.properties = {b"cluster": CLUSTER.encode(), b"node": node.encode(), b"version": b"0.1.0"}

    def load_from_cache(self, zeroconf: Zeroconf) -> bool:
        return self.name in self.known

    def parsed_addresses(self, version: object) -> list[str]:
        return ["127.0.0.1"]

    async def async_request(self, zeroconf: Zeroconf, timeout_ms: float, kind: object) -> bool:
        self.asked.set()
        await self.answer.wait()
        self.known.add(self.name)
        return True


@pytest.mark.parametrize("goodbye", [False, True], ids=["none", "before the answer"])
def test_an_answer_that_comes_after_a_goodbye_makes_nobody_a_neighbour(
    monkeypatch: pytest.MonkeyPatch, goodbye: bool
) -> None:
    async def scenario() -> list[CandidateSeen]:
        Info.known, Info.asked, Info.answer = {service_name(ME)}, asyncio.Event(), asyncio.Event()
        monkeypatch.setattr(mdns_listener, "AsyncServiceInfo", Info)
        ours = Announcement(ME, CLUSTER, Address("127.0.0.1", 7448), "0.1.0")
        nothing = cast("Zeroconf", None)
        listener = MdnsListener(nothing, ours, LOOPBACK, MdnsSettings())
        found: list[CandidateSeen] = []
        running = asyncio.create_task(listener.run(found.append, lambda *_: None))
        for name in (service_name(ME), NAME):
            listener.changed(nothing, SERVICE_TYPE, name, ServiceStateChange.Added)
        await asyncio.wait_for(Info.asked.wait(), 5)
        if goodbye:
            listener.changed(nothing, SERVICE_TYPE, NAME, ServiceStateChange.Removed)
        Info.answer.set()
        for _ in range(10):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return found

    found = asyncio.run(scenario())
    assert [each.node_id for each in found] == ([] if goodbye else [THEM])
