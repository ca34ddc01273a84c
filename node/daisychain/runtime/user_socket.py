"""The CLI's way in: HTTP on a Unix socket in the state folder, for this user alone."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from daisychain.errors import AgentError, DaisyChainError, StorageError
from daisychain.host.this_process import descends_from_here
from daisychain.runtime.agent_status import Refused

REQUEST_MAX_BYTES = 1 << 16
"""Largest request: a job's name, with room to spare."""

BACKLOG = 16

PEER_CREDENTIALS = struct.Struct("iII")
"""Process, user and group of who connected, as Linux has it."""


class UserSocket:
    """Serves ``routes`` on ``path`` (mode 0600) until closed."""

    def __init__(self, routes: Sequence[web.RouteDef], path: Path) -> None:
        self._path = path
        application = web.Application(
            client_max_size=REQUEST_MAX_BYTES, middlewares=[_errors_as_json, _not_from_job_code]
        )
        application.add_routes(routes)
        self._runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=0.5)

    async def start(self) -> None:
        """Listen; raises `StorageError` when the socket cannot be made."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._path.unlink(missing_ok=True)  # of an agent that was killed: the folder's lock is ours
            listener.bind(str(self._path))
            self._path.chmod(0o600)
        except OSError as error:
            listener.close()
            raise StorageError(f"the socket {self._path} cannot be made: {error}") from error
        await self._runner.setup()
        await web.SockSite(self._runner, listener, backlog=BACKLOG).start()

    async def close(self) -> None:
        """Stop, and remove the socket."""
        await self._runner.cleanup()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


def as_json(value: Any, status: int = 200) -> web.Response:
    """Return the answer that holds ``value``."""
    return web.Response(body=msgspec.json.encode(value), content_type="application/json", status=status)


@web.middleware
async def _errors_as_json(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Turn what is refused into an answer that the CLI can show."""
    try:
        return await handler(request)
    except DaisyChainError as error:
        return as_json(Refused(error.message, error.remedy), status=409)


@web.middleware
async def _not_from_job_code(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Refuse processes that this agent started: file permissions tell them from nobody, being of one user."""
    if _asked_from_below(request.transport):
        raise AgentError("job code may ask the agent nothing", "Ask from a shell that no job started")
    return await handler(request)


def _asked_from_below(transport: asyncio.BaseTransport | None) -> bool:
    """Whether a trainer, or what it started, is at the other end; false where no kernel tells (macOS)."""
    connection = None if transport is None else transport.get_extra_info("socket")
    if connection is None or not hasattr(socket, "SO_PEERCRED"):
        return False
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER_CREDENTIALS.size)
    return descends_from_here(PEER_CREDENTIALS.unpack(credentials)[0])
