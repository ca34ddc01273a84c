"""What the CLI may ask of a running agent."""

from __future__ import annotations

from pathlib import Path

import msgspec
from aiohttp import web

from daisychain.runtime.user_requests import UserRequests
from daisychain.runtime.user_socket import UserSocket, as_json


class _Named(msgspec.Struct, forbid_unknown_fields=True):
    """Which job is meant."""

    job: str


class AgentApi:
    """Serves the user's requests on ``path`` (mode 0600) until closed."""

    def __init__(self, requests: UserRequests, path: Path) -> None:
        self._requests = requests
        self._socket = UserSocket(
            [
                web.get("/status", self._status),
                web.get("/jobs", self._jobs),
                web.post("/submit", self._submit),
                web.post("/retry", self._retry),
                web.post("/cancel", self._cancel),
                web.post("/pause", self._pause),
                web.post("/resume", self._resume),
                web.get("/logs", self._logs),
            ],
            path,
        )

    async def start(self) -> None:
        """Listen; raises `StorageError` when the socket cannot be made."""
        await self._socket.start()

    async def close(self) -> None:
        """Stop, and remove the socket."""
        await self._socket.close()

    async def _status(self, request: web.Request) -> web.Response:
        return as_json(self._requests.status())

    async def _jobs(self, request: web.Request) -> web.Response:
        return as_json(self._requests.view().jobs)

    async def _submit(self, request: web.Request) -> web.Response:
        return as_json(self._requests.submit(await _named(request)))

    async def _retry(self, request: web.Request) -> web.Response:
        return as_json(self._requests.retry(await _named(request)))

    async def _pause(self, request: web.Request) -> web.Response:
        return as_json(self._requests.pause(await _named(request)))

    async def _resume(self, request: web.Request) -> web.Response:
        return as_json(self._requests.resume(await _named(request)))

    async def _cancel(self, request: web.Request) -> web.Response:
        return as_json(self._requests.cancel(await _named(request)))

    async def _logs(self, request: web.Request) -> web.Response:
        offset = request.query.get("offset", "0")
        if not offset.lstrip("-").isdecimal() or len(offset) > 18:
            raise web.HTTPBadRequest(text="offset is no number")
        return as_json(self._requests.logs(request.query.get("job", ""), int(offset)))


async def _named(request: web.Request) -> str:
    try:
        return msgspec.json.decode(await request.read(), type=_Named).job
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise web.HTTPBadRequest(text=f"not a request: {error}") from None
