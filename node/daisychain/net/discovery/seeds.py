"""Addresses that the configuration names: ``host``, ``host:port`` or ``[IPv6]:port``, parted by commas."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from daisychain.core.events import CandidateSeen
from daisychain.core.ids import Address
from daisychain.errors import ConfigError
from daisychain.net.discovery.sources import SourceHealth

SEEDS_MAX = 64
"""Most seeds: stops a mistaken list from turning this node into a port scanner."""

NAME_ADDRESSES_MAX = 4
"""Most addresses taken of one name: stops a name server from naming the targets of our dials."""


@dataclass(frozen=True, slots=True)
class Seed:
    """Where a node may be. ``numeric``: an IP address; otherwise a name that must be resolved."""

    host: str
    port: int
    numeric: bool

    def __str__(self) -> str:
        return str(Address(self.host, self.port))


@dataclass(frozen=True, slots=True)
class SeedSettings:
    """How often seeds are offered.

    Attributes:
        interval_s: seconds between two rounds.
        resolve_timeout_s: most seconds that a round waits for a name; a name server that does not
            answer must not hold up the other names.
    """

    interval_s: float = 5.0
    resolve_timeout_s: float = 5.0


def parse_seeds(text: str, default_port: int) -> tuple[Seed, ...]:
    """Return the seeds that ``text`` lists, without repetitions.

    Raises ConfigError naming the entry that is wrong; it ends the command.
    """
    seeds: dict[Seed, None] = {}
    for entry in (part.strip() for part in text.replace(";", ",").split(",")):
        if entry:
            seeds[_parse_seed(entry, default_port)] = None
    if len(seeds) > SEEDS_MAX:
        raise ConfigError(f"{len(seeds)} seeds are too many", f"List at most {SEEDS_MAX}")
    return tuple(seeds)


def _parse_seed(entry: str, default_port: int) -> Seed:
    remedy = "Write host, host:port or [IPv6 address]:port, parted by commas"
    host, port_text = entry, ""
    if entry.startswith("["):
        host, closed, rest = entry[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise ConfigError(f"the seed {entry!r} has no address in its brackets", remedy)
        port_text = rest[1:]
    elif entry.count(":") == 1:
        host, _, port_text = entry.partition(":")
    port = default_port
    if port_text or entry.endswith(":"):
        if not port_text.isascii() or not port_text.isdigit() or not 0 < int(port_text) < 65536:
            raise ConfigError(f"the seed {entry!r} has no port from 1 to 65535", remedy)
        port = int(port_text)
    try:
        return Seed(str(ipaddress.ip_address(host)), port, numeric=True)
    except ValueError:
        pass
    labels = host.rstrip(".").split(".")
    if len(host) > 253 or not all(_is_label(label) for label in labels) or labels[-1].isdigit():
        raise ConfigError(f"the seed {entry!r} is neither an IP address nor a host name", remedy)
    return Seed(host, port, numeric=False)


def _is_label(label: str) -> bool:
    fits = 0 < len(label) <= 63 and label.isascii()
    return fits and all(c.isalnum() or c in "-_" for c in label) and label[0] != "-" and label[-1] != "-"


class SeedSource:
    """Offers the configured addresses again and again; whoever dials them knows when to stop."""

    name = "seed"

    def __init__(self, seeds: tuple[Seed, ...], settings: SeedSettings | None = None) -> None:
        self._numeric = [seed for seed in seeds if seed.numeric]
        self._names = [seed for seed in seeds if not seed.numeric]
        self._settings = settings or SeedSettings()
        self._asked: dict[str, asyncio.Future[list[str]]] = {}

    async def run(
        self, found: Callable[[CandidateSeen], None], say: Callable[[SourceHealth, str], None]
    ) -> None:
        """Offer every seed each ``interval_s``, until cancelled; names do not delay the addresses."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._offer_numeric(found))
            group.create_task(self._offer_names(found, say))

    async def _offer_numeric(self, found: Callable[[CandidateSeen], None]) -> None:
        while True:
            for seed in self._numeric:
                found(CandidateSeen("seed", Address(seed.host, seed.port)))
            await asyncio.sleep(self._settings.interval_s)

    async def _offer_names(
        self, found: Callable[[CandidateSeen], None], say: Callable[[SourceHealth, str], None]
    ) -> None:
        count = len(self._numeric) + len(self._names)
        while True:
            failed = sorted(filter(None, await asyncio.gather(*(self._offer(n, found) for n in self._names))))
            if not failed:
                say(SourceHealth.OK, f"{count} configured")
            else:
                useless = not self._numeric and len(failed) == len(self._names)
                health = SourceHealth.UNAVAILABLE if useless else SourceHealth.OK
                say(health, f"{count} configured; not resolved: {'; '.join(failed)}")
            await asyncio.sleep(self._settings.interval_s)

    async def _offer(self, seed: Seed, found: Callable[[CandidateSeen], None]) -> str:
        """Offer what a name resolves to; return why it does not, empty when it does."""
        try:
            async with asyncio.timeout(self._settings.resolve_timeout_s):
                hosts = await asyncio.shield(self._ask(seed.host))
        except TimeoutError:
            return f"{seed.host} (no answer within {self._settings.resolve_timeout_s:g} s)"
        except OSError as error:
            return f"{seed.host} ({error.strerror or error})"
        for host in hosts[:NAME_ADDRESSES_MAX]:
            found(CandidateSeen("seed", Address(host, seed.port)))
        return ""

    def _ask(self, name: str) -> asyncio.Future[list[str]]:
        """Return the pending look-up of a name, or start one: never two of one name at a time.

        The system's resolver blocks for as long as it likes. It runs in a daemon thread, for the
        loop's own pool would be starved by it, and joined at the end of the process.
        """
        pending = self._asked.get(name)
        if pending is not None and not pending.done():
            return pending
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[str]] = loop.create_future()
        self._asked[name] = answer

        def settle(hosts: list[str], error: OSError | None) -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(hosts)
            else:
                answer.set_exception(error)
                answer.exception()  # an error that nobody waits for any more is no news

        def look_up() -> None:
            hosts: list[str] = []
            failure: OSError | None = None
            try:
                hosts = resolve(name)
            except OSError as error:
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop may be closed by now
                loop.call_soon_threadsafe(settle, hosts, failure)

        threading.Thread(target=look_up, name=f"resolve {name}", daemon=True).start()
        return answer


def resolve(name: str) -> list[str]:
    """Return the IPv4 addresses of a name, by the operating system's resolver. Blocks; raises OSError."""
    answers = socket.getaddrinfo(name, None, family=socket.AF_INET, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))
