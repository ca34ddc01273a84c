"""A relay between one node's cable and the bridge: a process that delays frames and loses some.

The kernel's own means for it, netem, is missing in many kernels. Only a link that has delay or loss is
relayed; all others go straight over the bridge.
"""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
from pathlib import Path

from rig.requirements import RigUnavailable, check_relay
from rig.shape import Shape

ANSWER_S = 10.0


class Relay:
    """The process that relays one node's frames, and the tap by which it reaches the bridge."""

    def __init__(self, namespace: str, port: str, tap: str, shape: Shape, seed: int) -> None:
        """Start it in the switch's ``namespace``. Raises `RigUnavailable`."""
        check_relay()
        program = str(Path(__file__).with_name("relay_process.py"))
        self.tap = tap
        command = ["nsenter", f"--net=/run/netns/{namespace}", sys.executable, "-I", "-S", program]
        self._process = subprocess.Popen(
            [*command, port, tap, str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            self.set(shape)
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def set(self, shape: Shape) -> None:
        """Shape the link anew, from the next frame on."""
        assert self._process.stdin is not None and self._process.stdout is not None
        told = {"delay_s": shape.delay_s, "jitter_s": shape.jitter_s, "loss": shape.loss}
        try:
            self._process.stdin.write(json.dumps(told) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it says why below
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            answered = bool(selector.select(ANSWER_S)) and self._process.stdout.readline() == "shaped\n"
        if not answered:
            self._process.kill()
            _, said = self._process.communicate()
            raise RigUnavailable(f"no relay for delay and loss: {said.strip().splitlines()[-1:] or 'silent'}")

    def stop(self) -> None:
        """End the process; its tap goes with it."""
        self._process.kill()
        self._process.communicate()
