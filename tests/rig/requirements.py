"""What the rig needs of a machine, and the one line that says what is missing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

PROGRAMS = {
    "ip": "iproute2",
    "tc": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}
TUN = Path("/dev/net/tun")


class RigUnavailable(Exception):
    """The rig cannot run here; the text is one line that says why. Tests skip with it, programs print it."""


def check_network() -> None:
    """Raise `RigUnavailable` unless namespaces, bridges and shaped links can be asked for."""
    if os.geteuid() != 0:
        raise RigUnavailable("the rig makes network namespaces, which needs root")
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            raise RigUnavailable(f"the rig needs the program `{program}` (Debian's package {package})")


def check_relay() -> None:
    """Raise `RigUnavailable` unless a relay can be set up: delay, jitter and loss need one."""
    if not TUN.exists():
        raise RigUnavailable(f"delay and loss need {TUN}, which this machine does not have")
