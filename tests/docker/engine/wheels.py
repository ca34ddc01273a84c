"""Python packages for an image build: the index that this machine's pip uses, and the wheels on its disk."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.waiting import until


@contextmanager
def served_wheels() -> Iterator[str]:
    """Give a pip.conf for containers on this machine's network; wheels are served meanwhile."""
    settings = _pip_settings()
    lines = ["[global]", "cert = /etc/ssl/certs/ca-certificates.crt"]
    if index := settings.get("index-url"):
        lines.append(f"index-url = {index}")
    folders = [Path(name) for name in settings.get("find-links", "").split() if Path(name).is_dir()]
    if not folders:
        yield "\n".join(lines) + "\n"
        return
    port = _free_port()
    server = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "http.server",
            str(port),
            "--bind",
            "127.0.0.1",
            "--directory",
            str(folders[0]),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: _listens(port), 20, "the wheels' server listens")
        lines += [f"find-links = http://127.0.0.1:{port}/", "trusted-host = 127.0.0.1"]
        yield "\n".join(lines) + "\n"
    finally:
        server.terminate()
        server.wait(10)


def _pip_settings() -> dict[str, str]:
    """Return what this machine's pip is set to, by key; the environment over the files."""
    told = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    found: dict[str, str] = {}
    for line in told.stdout.splitlines():
        key, _, value = line.partition("=")
        found[key.rpartition(".")[2]] = value.strip("'\"").replace("\\n", " ")
    for key in ("index-url", "find-links"):
        found[key] = os.environ.get(f"PIP_{key.replace('-', '_').upper()}") or found.get(key, "")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
