"""Stands in for the `tailscale` program: prints, complains, exits and hangs as the real one does.

`stand_ins.tailscale` makes the executable.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

from support.tailscale_json import peer, status

DAEMON_DOWN = (
    "failed to connect to local tailscaled; it doesn't appear to be running "
    "(sudo systemctl start tailscaled ?)\n"
)
PERMISSION = (
    "failed to connect to local tailscaled (which appears to be running as tailscaled, pid 700). "
    'Got error: Get "http://local-tailscaled.sock/localapi/v0/status": dial unix '
    "/var/run/tailscale/tailscaled.sock: connect: permission denied\n"
)
LOGIN_PAGE = "https://login.tailscale.com/a/1234abcd"
SKEW = 'Warning: client version "1.92.0" != tailscaled server version "1.90.1"\n'


def _complain(text: str, code: int = 1) -> int:
    sys.stderr.write(text)
    return code


def _print(root: object) -> int:
    print(json.dumps(root, indent=2))
    return 0


def _counted(counter: Path) -> int:
    """Be down at the first two calls, as a daemon that is just starting."""
    calls = int(counter.read_text()) if counter.exists() else 0
    counter.write_text(str(calls + 1))
    return _complain(DAEMON_DOWN) if calls < 2 else _print(status(peer(2)))


def main(arguments: list[str]) -> int:
    """Behave as the first argument says; another command line than ``status --json`` is a usage error."""
    mode, *rest = arguments
    if rest[-2:] != ["status", "--json"]:
        return _complain("USAGE\n", 2)
    match mode:
        case "running":
            phone = peer(4, OS="iOS")
            return _print(status(peer(2), peer(3, Online=False), phone))
        case "skew":
            sys.stderr.write(SKEW)
            return _print(status(peer(2)))
        case "userspace":
            return _print(status(peer(2), TUN=False))
        case "daemon-down":
            return _complain(DAEMON_DOWN)
        case "permission":
            return _complain(PERMISSION)
        case "starting":
            return _counted(Path(rest[0]))
        case "garbage":
            print("# Health check:\n#     - not connected")
            return 0
        case "crash":
            return _complain("panic: runtime error: index out of range\n", 2)
        case "flood":
            with contextlib.suppress(BrokenPipeError):
                while True:
                    sys.stdout.write("x" * 65536)
            return 1
        case "hang":  # with a child that holds the output open
            return subprocess.call([sys.executable, "-c", "import signal; signal.pause()"])
        case "NeedsLogin":
            return _print(status(BackendState=mode, AuthURL=LOGIN_PAGE, Self=None, CurrentTailnet=None))
        case _:  # a backend's state
            return _print(status(BackendState=mode, Self=None, CurrentTailnet=None, TUN=False))
