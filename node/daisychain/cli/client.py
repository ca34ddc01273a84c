"""Talks to the local agent over its Unix socket; small and synchronous."""

from __future__ import annotations

import http.client
import socket
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from daisychain.core.jobs import JobCard
from daisychain.errors import AgentError, ProtocolError
from daisychain.host.state_folder import socket_of
from daisychain.runtime.agent_status import AgentStatus, LogChunk, Refused, Submitted

TIMEOUT_S = 5.0
"""An agent that lives answers in milliseconds."""

ANSWER_MAX_BYTES = 8 << 20

T = TypeVar("T")


class Witness:
    """A connection to an agent that ends when the agent does, however it ends."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection

    def __enter__(self) -> Witness:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def gone_within(self, timeout_s: float) -> bool:
        """Wait for the agent's end; False when it outlives ``timeout_s``."""
        self._connection.sock.settimeout(timeout_s)
        try:
            return self._connection.sock.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True  # reset


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("agent", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        """Connect to the agent's socket; raises FileNotFoundError where there are no such sockets."""
        if not hasattr(socket, "AF_UNIX"):  # native Windows, where no agent runs
            raise FileNotFoundError("no Unix sockets here")
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(str(self._path))


class AgentClient:
    """The agent that uses this state folder. Every method raises `AgentError` when it cannot be reached."""

    def __init__(self, state_folder: Path) -> None:
        self._state_folder = state_folder
        self._path = socket_of(state_folder)

    def witness(self) -> Witness:
        """Return who tells of the agent's end."""
        connection = _UnixConnection(self._path)
        try:
            connection.connect()
        except OSError as error:
            raise AgentError(f"the agent cannot be watched: {error}", "Start it again") from None
        return Witness(connection)

    def status(self) -> AgentStatus:
        """Return what the agent knows."""
        return self._ask("GET", "/status", AgentStatus)

    def jobs(self) -> tuple[JobCard, ...]:
        """Return the runs in queue order, the ended ones last."""
        return self._ask("GET", "/jobs", tuple[JobCard, ...])

    def submit(self, job: str) -> Submitted:
        """Queue a job of the jobs folder."""
        return self._ask("POST", "/submit", Submitted, {"job": job})

    def cancel(self, job: str) -> JobCard:
        """Cancel a job's run."""
        return self._ask("POST", "/cancel", JobCard, {"job": job})

    def retry(self, job: str) -> JobCard:
        """Queue an ended job again; return its new run."""
        return self._ask("POST", "/retry", JobCard, {"job": job})

    def pause(self, job: str) -> JobCard:
        """Pause a job's run."""
        return self._ask("POST", "/pause", JobCard, {"job": job})

    def resume(self, job: str) -> JobCard:
        """Have a paused run go on."""
        return self._ask("POST", "/resume", JobCard, {"job": job})

    def logs(self, job: str, offset: int) -> LogChunk:
        """Return a part of the log of a job's newest run."""
        return self._ask("GET", f"/logs?{urlencode({'job': job, 'offset': offset})}", LogChunk)

    def _ask(self, method: str, path: str, kind: type[T], body: object = None) -> T:
        connection = _UnixConnection(self._path)
        try:
            connection.request(method, path, None if body is None else msgspec.json.encode(body))
            response = connection.getresponse()
            data = response.read(ANSWER_MAX_BYTES + 1)
        except (FileNotFoundError, ConnectionRefusedError):
            raise AgentError(
                f"no agent runs on the state folder {self._state_folder}",
                "Start one with `daisychain node`, or name its folder with --state-folder",
            ) from None
        except TimeoutError:
            raise AgentError(
                f"the agent did not answer within {TIMEOUT_S:g} s", "Look at agent.log in its state folder"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise AgentError(f"the agent cannot be asked: {error}", "Start it again") from None
        finally:
            connection.close()
        try:
            if response.status == http.client.CONFLICT:
                refused = msgspec.json.decode(data, type=Refused)
                raise AgentError(refused.error, refused.remedy)
            if response.status != http.client.OK:
                raise ProtocolError(
                    f"the agent answered {response.status}: {data[:200].decode(errors='replace')}"
                )
            return msgspec.json.decode(data, type=kind)
        except msgspec.DecodeError as error:
            raise ProtocolError(
                f"what answered is no agent of this version: {error}", "Restart the agent after an update"
            ) from None
