"""What a Docker engine for the tests needs of a machine, and the one line that says what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

PACKAGES = {"dockerd": "docker.io", "debootstrap": "debootstrap"}
NEWER_PACKAGES = {"docker": "docker-cli"}
"""From Debian 13 on the client is a package of its own."""

INSTALL_S = 300.0


class DockerUnavailable(Exception):
    """No Docker engine is had here; the text is one line that says why. Tests skip with it."""


def answers(client: str = "docker") -> bool:
    """Whether an engine answers already."""
    if shutil.which(client) is None:
        return False
    told = subprocess.run(
        [client, "version", "--format", "{{.Server.Version}}"], check=False, capture_output=True, timeout=60
    )
    return told.returncode == 0


def install_engine() -> None:
    """Install Debian's engine where it is missing; raises `DockerUnavailable`."""
    if os.geteuid() != 0:
        raise DockerUnavailable("no Docker engine answers, and making one needs root")
    if not Path("/etc/debian_version").exists() or shutil.which("apt-get") is None:
        raise DockerUnavailable("no Docker engine answers, and one is made on Debian only")
    wanted = PACKAGES if shutil.which("docker") else PACKAGES | NEWER_PACKAGES
    missing = sorted(package for program, package in wanted.items() if shutil.which(program) is None)
    if not missing:
        return
    quietly = {
        "env": os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        "capture_output": True,
        "text": True,
    }
    for command in (["update", "-q"], ["install", "-y", "-q", "--no-install-recommends", *missing]):
        done = subprocess.run(["apt-get", *command], timeout=INSTALL_S, check=False, **quietly)  # type: ignore[call-overload]
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no reason told"])[-1]
            raise DockerUnavailable(f"no Docker engine answers, and apt-get {command[0]} failed: {last}")
