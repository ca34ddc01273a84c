"""Asks this container's agent for its status; exit 0 when it answers, 1 with the reason when it does not.

Standard library only and run without site-packages: it starts in some 30 ms, every 15 seconds.
"""

import http.client
import os
import pathlib
import socket
import sys

TIMEOUT_S = 4.0
"""Below Docker's own bound, so that the reason is told."""

TOLD_MAX_BYTES = 1000
"""Of the agent's reason; Docker keeps 4 KiB of what a check prints."""


class Agent(http.client.HTTPConnection):
    """HTTP over the agent's Unix socket."""

    def connect(self) -> None:
        """Connect to the socket in the state folder."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(str(pathlib.Path(os.environ["DAISYCHAIN_STATE_FOLDER"], "agent.sock")))


def main() -> int:
    """Return the exit code."""
    agent = Agent("agent")
    try:
        agent.request("GET", "/status")
        answer = agent.getresponse()
        status, told = answer.status, answer.read(TOLD_MAX_BYTES)
    except (OSError, http.client.HTTPException) as error:
        print(f"the agent does not answer: {error}")
        return 1
    if status != http.client.OK:
        print(f"the agent answered {status}: {told.decode(errors='replace')}")  # it may wait for its network
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
