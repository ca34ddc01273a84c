"""Finding nodes through Tailscale: its CLI is asked what the tailnet holds, again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from daisychain.core.events import CandidateSeen
from daisychain.core.ids import Address
from daisychain.errors import NetworkError
from daisychain.net.discovery.command import CommandBounds, CommandHungError, run_command
from daisychain.net.discovery.sources import SourceHealth
from daisychain.net.discovery.tailnet_status import (
    DialPlan,
    TailnetStatus,
    parse_status,
    slow_path,
    whom_to_dial,
)

USERSPACE_REMEDY = (
    "Give tailscaled a real interface: in a container TS_USERSPACE=false, the device /dev/net/tun and "
    "NET_ADMIN; elsewhere start it without --tun=userspace-networking"
)


@dataclass(frozen=True, slots=True)
class TailnetSettings:
    """Bounds of the tailnet source.

    Attributes:
        interval_s: seconds between two looks at the tailnet; a look costs a process. A newcomer looks at
            once and dials, so that the others need not look for it.
        timeout_s: most seconds for one run of the CLI; it hangs when its daemon does.
        output_bytes_max: most bytes taken of its output (a tailnet of thousands has a few MiB); a
            program that prints without end is stopped there.
        attempts: runs of the CLI before its complaint is believed; the daemon may just be starting.
        retry_s: seconds before the second attempt; doubled for each later one.
    """

    interval_s: float = 20.0
    timeout_s: float = 5.0
    output_bytes_max: int = 8 * 1024 * 1024
    attempts: int = 3
    retry_s: float = 0.5


class PassingTroubleError(NetworkError):
    """The CLI failed in a way that may be over in a moment: it is asked again at once."""


class TailnetSource:
    """Offers the machines of the tailnet that may be nodes."""

    name = "tailnet"

    def __init__(
        self, command: tuple[str, ...], control_port: int, settings: TailnetSettings | None = None
    ) -> None:
        self._command = command
        self._port = control_port
        self._settings = settings or TailnetSettings()

    async def run(
        self, found: Callable[[CandidateSeen], None], say: Callable[[SourceHealth, str], None]
    ) -> None:
        """Look at the tailnet each ``interval_s`` until cancelled. Raises NetworkError when it is not up."""
        while True:
            status = await read_tailnet(self._command, self._settings)
            trouble = why_no_interface(status)
            if trouble is not None:
                raise trouble
            plan = whom_to_dial(status)
            for peer in plan.peers:
                found(CandidateSeen("tailnet", Address(peer.address, self._port)))
            say(SourceHealth.OK, describe(status, plan))
            await asyncio.sleep(self._settings.interval_s)


def why_no_interface(status: TailnetStatus) -> NetworkError | None:
    """Return why a tailnet that is up has no interface to train over; None when it should have one."""
    if not status.userspace:
        return None
    return NetworkError(
        "Tailscale runs in userspace mode: there is no interface to train over", USERSPACE_REMEDY
    )


def describe(status: TailnetStatus, plan: DialPlan) -> str:
    """Return one line on the tailnet: our name in it, who is dialled, why, and which paths are slow."""
    whom = f"{len(plan.peers)} machines to dial ({plan.reason})"
    text = f"{status.name or 'tailnet'}, as {status.own_name}: {whom}"
    slow = [told for told in (slow_path(status.own_name, peer) for peer in plan.peers) if told]
    return "; ".join([text, *slow[:3], *status.health[:3]])


async def read_tailnet(command: tuple[str, ...], settings: TailnetSettings | None = None) -> TailnetStatus:
    """Return the tailnet's status by running ``command status --json``.

    Raises NetworkError telling apart: no such program, its daemon is down, its socket may not be used,
    it hung, it printed garbage, the tailnet is not up.
    """
    settings = settings or TailnetSettings()
    bounds = CommandBounds(settings.timeout_s, settings.output_bytes_max)
    retrying = AsyncRetrying(
        stop=stop_after_attempt(settings.attempts),
        wait=wait_exponential(settings.retry_s),
        retry=retry_if_exception_type(PassingTroubleError),
        reraise=True,
    )
    async for attempt in retrying:
        with attempt:
            try:
                result = await run_command((*command, "status", "--json"), bounds)
            except CommandHungError as error:
                raise PassingTroubleError(error.message, "Restart tailscaled") from None
            if result.code != 0:
                raise _failed(result.code, result.complaint)
            # a version skew between client and daemon is a warning in the complaints, and no part of the JSON
            return parse_status(result.output)
    raise AssertionError("a bounded retry either returns or raises")


def _failed(code: int, complaint: str) -> NetworkError:
    """Return what a failed run of the CLI means."""
    told = complaint.lower()
    if "permission denied" in told or "access denied" in told:
        return NetworkError(
            "tailscaled's socket may not be used by this user",
            "Run the node as the socket's group, or `tailscale set --operator=<user>` once",
        )
    if "failed to connect to local" in told or "doesn't appear to be running" in told:
        return PassingTroubleError("tailscaled is not running", "Start it: `systemctl start tailscaled`")
    last = complaint.strip().splitlines()[-1][:200] if complaint.strip() else "without a word"
    return PassingTroubleError(f"tailscale ended with exit code {code}: {last}", "Look at `tailscale status`")
