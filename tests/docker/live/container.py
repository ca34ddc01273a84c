"""One node in a container: a real agent, and what can be done to its container from the machine."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from docker.engine.engine import Engine
from support.watched_node import WatchedNode

KILL_S = 30.0


@dataclass
class Container(WatchedNode):
    """A node of a live chain.

    Attributes:
        engine: where it runs.
        project: its compose project.
    """

    engine: Engine = field(kw_only=True)
    project: str = field(kw_only=True)

    @property
    def id(self) -> str:
        """Its container's id."""
        labels = (
            f"label=com.docker.compose.project={self.project}",
            f"label=com.docker.compose.service={self.name}",
        )
        filters = [part for label in labels for part in ("--filter", label)]
        return self.engine.docker("ps", "--all", "--quiet", *filters).strip()

    @property
    def pid(self) -> int:
        """The process id of its init, as the machine sees it."""
        return int(self.inspect("{{.State.Pid}}"))

    def inspect(self, template: str) -> str:
        return self.engine.docker("inspect", "--format", template, self.id).strip()

    def run_folder(self) -> Path:
        """Return the folder of its one run."""
        (folder,) = (self.state / "runs").iterdir()
        return folder

    # Each of these returns Unix seconds: of the two silent ones those just before they were asked for. ------

    def kill(self) -> float:
        """SIGKILL every process of the container, as a power cut would; return when its agent was gone.

        Not when it was asked for: until the engine acts upon it the node trains on.
        """
        with self.client.witness() as witness:
            self._strike("kill", self.id)
            assert witness.gone_within(KILL_S), f"{self.name} was not killed"
            return time.time()

    def pause(self) -> float:
        """Freeze every process of the container."""
        return self._strike("pause", self.id)

    def unpause(self) -> float:
        return self._strike("unpause", self.id)

    def cut(self) -> float:
        """Pull its cable, without a reset."""
        return self._link("down")

    def heal(self) -> float:
        """Plug its cable in again."""
        return self._link("up")

    def _strike(self, *command: str) -> float:
        at = time.time()
        self.engine.docker(*command)
        return at

    def _link(self, state: str) -> float:
        """Set the machine's end of the container's network pair ``up`` or ``down``."""
        index = self.engine.docker("exec", self.id, "cat", "/sys/class/net/eth0/iflink").strip()
        (name,) = (
            path.parent.name
            for path in Path("/sys/class/net").glob("veth*/ifindex")
            if path.read_text().strip() == index
        )
        at = time.time()
        subprocess.run(["ip", "link", "set", "dev", name, state], check=True, timeout=10)
        return at
