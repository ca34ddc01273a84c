"""A node of a tailnet waits until the tailnet is up, and tells whoever asks what it waits for."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn

from aiohttp import web

from daisychain.errors import AgentError, NetworkError
from daisychain.net.interface_choice import InterfaceChoice
from daisychain.runtime.user_socket import UserSocket

log = logging.getLogger("daisychain.agent")

LOOK_EVERY_S = 2.0
"""Pause between two looks; each costs a process, and a person who just logged in watches the screen."""


class TailnetWait:
    """One wait for the tailnet's interface; it has no bound in time, since a login waits for a person."""

    def __init__(self, socket: Path, look_every_s: float = LOOK_EVERY_S) -> None:
        """``socket``: where the CLI asks; every request is refused there with what is waited for."""
        self._look_every_s = look_every_s
        self._hurdle = NetworkError("the tailnet was not looked at yet")
        self._api = UserSocket([web.route("*", "/{request:.*}", self._refuse)], socket)

    async def until_up(
        self, look: Callable[[], Awaitable[InterfaceChoice]], leaving: asyncio.Event
    ) -> InterfaceChoice | None:
        """Return the interface as soon as ``look`` finds it; None when ``leaving`` comes first.

        Each change of the hurdle is logged once. Raises `StorageError` when the socket cannot be made.
        """
        left = asyncio.create_task(leaving.wait())
        serving = False
        told = ""
        try:
            while not left.done():
                looking = asyncio.ensure_future(look())
                try:
                    await asyncio.wait([looking, left], return_when=asyncio.FIRST_COMPLETED)
                    if not looking.done():
                        return None
                    return looking.result()
                except NetworkError as hurdle:
                    self._hurdle = hurdle
                finally:
                    looking.cancel()
                    with contextlib.suppress(asyncio.CancelledError, NetworkError):
                        await looking
                if str(self._hurdle) != told:
                    told = str(self._hurdle)
                    log.warning("waiting for the tailnet: %s", told)
                if not serving:
                    serving = True
                    await self._api.start()
                await asyncio.wait([left], timeout=self._look_every_s)
            return None
        finally:
            left.cancel()
            if serving:
                await self._api.close()

    async def _refuse(self, request: web.Request) -> NoReturn:
        raise AgentError(f"this node waits for the tailnet: {self._hurdle.message}", self._hurdle.remedy)
