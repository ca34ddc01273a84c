"""Whether mDNS works here, found out by doing it: for `daisychain doctor`."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import dataclass

from zeroconf import DNSQuestionType, IPVersion, ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo

from daisychain.net.discovery.mdns import open_mdns
from daisychain.net.discovery.mdns_listener import MdnsSettings, await_echo
from daisychain.net.discovery.mdns_record import SERVICE_TYPE, Neighbour, read_neighbour
from daisychain.net.interface_choice import InterfaceChoice

CHECK_TYPE = "_daisychain-dr._tcp.local."
"""A service type of its own, so that a check is no node to anybody."""


@dataclass(frozen=True, slots=True)
class MdnsFinding:
    """That our own announcement was heard, after how long, and which nodes were heard meanwhile."""

    echo_s: float
    neighbours: tuple[Neighbour, ...]


async def check_mdns(
    interface: InterfaceChoice, listen_s: float = 1.5, settings: MdnsSettings | None = None
) -> MdnsFinding:
    """Announce a check on the interface, hear it, and listen for nodes for ``listen_s``.

    Raises NetworkError with the reason when mDNS does not work there. Takes at most the settings'
    ``echo_timeout_s`` + ``listen_s`` + ``goodbye_s`` and the attempts to open the sockets.
    """
    settings = settings or MdnsSettings()
    loop = asyncio.get_running_loop()
    own_name = f"{secrets.token_hex(8)}.{CHECK_TYPE}"
    echo = asyncio.Event()
    names: set[str] = set()

    # zeroconf passes these by name
    def changed(zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if name == own_name:
            echo.set()
        elif service_type == SERVICE_TYPE and len(names) < settings.neighbours_max:
            names.add(name)

    mdns = await open_mdns(interface, settings)
    try:
        info = AsyncServiceInfo(
            CHECK_TYPE,
            own_name,
            port=9,  # the discard port: nobody shall come
            server=f"{own_name.split('.', maxsplit=1)[0]}.local.",
            parsed_addresses=[interface.address],
            host_ttl=settings.record_ttl_s,
            other_ttl=settings.record_ttl_s,
        )
        browser = AsyncServiceBrowser(
            mdns.zeroconf, [SERVICE_TYPE, CHECK_TYPE], handlers=[changed], question_type=DNSQuestionType.QM
        )
        try:
            started = loop.time()
            await mdns.async_register_service(info, cooperating_responders=True)
            await await_echo(echo, interface, settings)
            echo_s = loop.time() - started
            await asyncio.sleep(listen_s)
        finally:
            await browser.async_cancel()
        found = (_read(mdns.zeroconf, name, interface) for name in sorted(names))
        return MdnsFinding(echo_s, tuple(neighbour for neighbour in found if neighbour is not None))
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(settings.goodbye_s):
                await mdns.async_close()


def _read(zeroconf: Zeroconf, name: str, interface: InterfaceChoice) -> Neighbour | None:
    info = AsyncServiceInfo(SERVICE_TYPE, name)
    if not info.load_from_cache(zeroconf):
        return None
    hosts = info.parsed_addresses(IPVersion.V4Only)
    neighbour = read_neighbour(name, hosts, info.port, info.properties, interface.on_link)
    return neighbour if isinstance(neighbour, Neighbour) else None
