"""Unit tests open no socket."""

from __future__ import annotations

import pytest
from pytest_socket import disable_socket


@pytest.fixture(autouse=True)
def no_sockets(leaves_nothing_behind: None) -> None:
    """Refuse every socket, a Unix one excepted (asyncio's own wake-up pair)."""
    disable_socket(allow_unix_socket=True)
