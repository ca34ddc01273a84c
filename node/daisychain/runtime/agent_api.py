"""The CLI's way in: HTTP on a Unix socket in the state folder, for this user alone."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from daisychain.errors import AgentError, DaisyChainError, StorageError
from daisychain.host.this_process import descends_from_here
from daisychain.runtime.agent_status import Refused
from daisychain.runtime.user_requests import UserRequests

REQUEST_MAX_BYTES = 1 << 16
"""Largest request: a job's name, with room to spare."""

BACKLOG = 16

PEER_CREDENTIALS = struct.Struct("iII")
"""Process, user and group of who connected, as Linux has it."""


class _Named(msgspec.Struct, forbid_unknown_fields=True):
    """Which job is meant."""

    job: str


class AgentApi:
    """Serves the user's requests on ``path`` (mode 0600) until closed."""

    def __init__(self, requests: UserRequests, path: Path) -> None:
        self._requests = requests
        self._path = path
        application = web.Application(
            client_max_size=REQUEST_MAX_BYTES, middlewares=[_errors_as_json, _not_from_job_code]
        )
        application.add_routes(
            [
                web.get("/status", self._status),
                web.get("/jobs", self._jobs),
                web.post("/submit", self._submit),
                web.post("/retry", self._retry),
                web.post("/cancel", self._cancel),
                web.post("/pause", self._pause),
                web.post("/resume", self._resume),
                web.get("/logs", self._logs),
            ]
        )
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

    async def _status(self, request: web.Request) -> web.Response:
        return _json(self._requests.status())

    async def _jobs(self, request: web.Request) -> web.Response:
        return _json(self._requests.view().jobs)

    async def _submit(self, request: web.Request) -> web.Response:
        return _json(self._requests.submit(await _named(request)))

    async def _retry(self, request: web.Request) -> web.Response:
        return _json(self._requests.retry(await _named(request)))

    async def _pause(self, request: web.Request) -> web.Response:
        return _json(self._requests.pause(await _named(request)))

    async def _resume(self, request: web.Request) -> web.Response:
        return _json(self._requests.resume(await _named(request)))

    async def _cancel(self, request: web.Request) -> web.Response:
        return _json(self._requests.cancel(await _named(request)))

    async def _logs(self, request: web.Request) -> web.Response:
        offset = request.query.get("offset", "0")
        if not offset.lstrip("-").isdecimal() or len(offset) > 18:
            raise web.HTTPBadRequest(text="offset is no number")
        return _json(self._requests.logs(request.query.get("job", ""), int(offset)))


@web.middleware
async def _errors_as_json(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Turn what is refused into an answer that the CLI can show."""
    try:
        return await handler(request)
    except DaisyChainError as error:
        return _json(Refused(error.message, error.remedy), status=409)


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


async def _named(request: web.Request) -> str:
    try:
        return msgspec.json.decode(await request.read(), type=_Named).job
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise web.HTTPBadRequest(text=f"not a request: {error}") from None


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json", status=status)
