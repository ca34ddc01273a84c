"""Connections that are dropped, whatever became of them before."""

from __future__ import annotations

import asyncio

from daisychain.net.links.sockets import drop


class Ended(asyncio.Transport):
    """A TLS connection that has ended, as Python 3.11.2 has it: its protocol is gone."""

    def abort(self) -> None:
        self._protocol = None
        self._protocol._abort()  # type: ignore[attr-defined]


class Open(asyncio.Transport):
    aborted = False

    def abort(self) -> None:
        self.aborted = True


def test_a_connection_is_dropped_and_one_that_has_ended_is_no_error() -> None:
    connection = Open()
    drop(connection)
    assert connection.aborted
    drop(Ended())
