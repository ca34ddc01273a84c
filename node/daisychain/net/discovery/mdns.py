"""Finding nodes by multicast DNS: announced and browsed on the chosen interface alone.

The standard library of mDNS in Python (zeroconf) would by default use every interface, which floods
Docker hosts and announces addresses that nobody can reach; here it is given one IPv4 address. With no
IPv6 socket opened, a machine where IPv6 or its port is in somebody else's hands works all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential
from zeroconf import DNSQuestionType, IPVersion
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from daisychain.core.events import CandidateSeen
from daisychain.errors import NetworkError
from daisychain.net.discovery.mdns_listener import MdnsListener, MdnsSettings
from daisychain.net.discovery.mdns_record import SERVICE_TYPE, service_name, text_of
from daisychain.net.discovery.sources import Announcement, SourceHealth
from daisychain.net.interface_choice import InterfaceChoice


class MdnsSource:
    """Announces this node and finds those that announce themselves, over one interface."""

    name = "mdns"

    def __init__(
        self, announcement: Announcement, interface: InterfaceChoice, settings: MdnsSettings | None = None
    ) -> None:
        self._announcement = announcement
        self._interface = interface
        self._settings = settings or MdnsSettings()

    async def run(
        self, found: Callable[[CandidateSeen], None], say: Callable[[SourceHealth, str], None]
    ) -> None:
        """Announce and browse until cancelled, then say goodbye.

        Raises NetworkError when the socket cannot be had or multicast does not work here.
        """
        zeroconf = await open_mdns(self._interface, self._settings)
        listener = MdnsListener(zeroconf.zeroconf, self._announcement, self._interface, self._settings)
        try:
            info = self._info()
            # at once: the name is its random id, so there is nobody to ask first
            await zeroconf.async_register_service(info, cooperating_responders=True)
            again = asyncio.create_task(self._announce_again(zeroconf, info), name="mdns-announce")
            browser = AsyncServiceBrowser(
                zeroconf.zeroconf,
                SERVICE_TYPE,
                handlers=[listener.changed],
                # a unicast answer reaches only one of the processes that share the port
                question_type=DNSQuestionType.QM,
            )
            try:
                await listener.run(found, say)
            finally:
                again.cancel()
                await asyncio.gather(again, return_exceptions=True)
                await browser.async_cancel()
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.goodbye_s):
                    await zeroconf.async_close()

    async def _announce_again(self, zeroconf: AsyncZeroconf, info: AsyncServiceInfo) -> None:
        """Announce this node every now and then: somebody may only now be able to hear it."""
        while True:
            await asyncio.sleep(self._settings.announce_again_s)
            with contextlib.suppress(OSError):  # the interface is down for the moment
                await (await zeroconf.async_update_service(info))

    def _info(self) -> AsyncServiceInfo:
        ttl_s = self._settings.record_ttl_s
        return AsyncServiceInfo(
            SERVICE_TYPE,
            service_name(self._announcement.node_id),
            port=self._announcement.address.port,
            properties=dict(text_of(self._announcement)),
            server=f"{self._announcement.node_id}.local.",
            parsed_addresses=[self._announcement.address.host],
            host_ttl=ttl_s,
            other_ttl=ttl_s,
        )


async def open_mdns(interface: InterfaceChoice, settings: MdnsSettings) -> AsyncZeroconf:
    """Return mDNS's sockets, bound to the chosen address. Raises NetworkError when they cannot be had."""
    retrying = AsyncRetrying(
        stop=stop_after_attempt(settings.open_attempts),
        wait=wait_exponential(settings.open_retry_s),
        retry=retry_if_exception_type(OSError),
        reraise=True,
    )
    try:
        async for attempt in retrying:
            with attempt:
                return AsyncZeroconf(interfaces=[interface.address], ip_version=IPVersion.V4Only)
    except OSError as error:
        raise _unusable(error, f"{interface.name} ({interface.address})") from error
    raise AssertionError("a bounded retry either returns or raises")


def _unusable(error: OSError, where: str) -> NetworkError:
    if error.errno == errno.EADDRINUSE:
        return NetworkError(
            f"mDNS cannot share port 5353 on {where}: another program holds it for itself",
            "With avahi set disallow-other-stacks=no in avahi-daemon.conf; or use seeds or the tailnet",
        )
    if error.errno in (errno.EPERM, errno.EACCES):
        return NetworkError(
            f"mDNS may not open port 5353 on {where}: {error.strerror}", "Use seeds or the tailnet"
        )
    return NetworkError(f"mDNS cannot be used on {where}: {error}", "Use seeds or the tailnet")
