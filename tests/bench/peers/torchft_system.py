"""torchft: a lighthouse on the first node, and a replica group of one process on each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.peers.system import TRAIN, Seat, Service

PORT = 29510


class TorchFt:
    """Settings are the fastest found with which a chain without faults stays whole; defaults beside them."""

    name = "torchft"
    one_process = True

    def __init__(self, python: Path, version: str) -> None:
        self._python = python
        self.version = version
        self.environment: Mapping[str, str] = {}
        self.settings: Mapping[str, object] = {
            "lighthouse --heartbeat_timeout_ms": 1000,
            "lighthouse --join_timeout_ms": 150,
            "lighthouse --quorum_tick_ms": 50,
            "Manager heartbeat_interval (ms)": 100,
            "Manager and ProcessGroupGloo timeout (s)": 1,
            "Manager quorum_timeout (s)": 30,
            "price": "a replica 150 ms late is left out; an all-reduce or a state transfer of 1 s fails",
            "defaults": "heartbeat_timeout 5 s, join_timeout 60 s, tick and interval 100 ms, timeouts 60 s",
        }

    def service(self, seat: Seat) -> Service | None:
        """Return the lighthouse."""
        if seat.number != 0:
            return None
        command = [str(self._python.with_name("torchft_lighthouse")), "--bind", f"[::]:{PORT}"]
        for key in ("heartbeat_timeout_ms", "join_timeout_ms", "quorum_tick_ms"):
            command += [f"--{key}", str(self.settings[f"lighthouse --{key}"])]
        return Service([*command, "--min_replicas", "1"], PORT)

    def node(self, seat: Seat) -> list[str]:
        """Return the training program's command."""
        given = {
            "--job": seat.job,
            "--steps": seat.folder / "steps",
            "--name": seat.name,
            "--address": seat.address,
            "--lighthouse": f"http://{seat.host}:{PORT}",
            "--nodes": seat.nodes,
            "--seed": seat.number,
            "--timeout-s": self.settings["Manager and ProcessGroupGloo timeout (s)"],
            "--quorum-timeout-s": self.settings["Manager quorum_timeout (s)"],
            "--heartbeat-ms": self.settings["Manager heartbeat_interval (ms)"],
        }
        command = [str(self._python), str(TRAIN / "torchft_train.py")]
        return command + [str(part) for pair in given.items() for part in pair]
