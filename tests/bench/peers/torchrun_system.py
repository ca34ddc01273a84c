"""torchrun elastic: an agent on each node, the first one hosts the rendezvous."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.peers.system import TRAIN, Seat, Service

PORT = 29400


class Torchrun:
    """Settings are the fastest found with which a chain without faults stays whole; defaults beside them."""

    name = "torchrun"
    one_process = False

    def __init__(self, python: Path, version: str) -> None:
        self._python = python
        self.version = version
        # Its agents otherwise keep to the store of an earlier round's rank 0, and wait for ever when another
        # one is rank 0 now (torch 2.13).
        self.environment: Mapping[str, str] = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        self.settings: Mapping[str, object] = {
            "--monitor-interval (s)": 0.1,
            "--shutdown-timeout (s)": 1,
            "rdzv last_call_timeout (s)": 1,
            "rdzv keep_alive_interval (s)": 1,
            "rdzv keep_alive_max_attempt": 3,
            "gloo timeout (s)": 2,
            "steps between checkpoints": 25,
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": 1,
            "defaults": "monitor 0.1 s, shutdown 30 s, last call 30 s, keep-alive 3 x 5 s, gloo 1800 s",
        }

    def service(self, seat: Seat) -> Service | None:
        """Return None: the first agent hosts the rendezvous."""
        return None

    def node(self, seat: Seat) -> list[str]:
        """Return the agent's command."""
        settings = self.settings
        rendezvous = {
            "is_host": int(seat.number == 0),
            "last_call_timeout": settings["rdzv last_call_timeout (s)"],
            "keep_alive_interval": settings["rdzv keep_alive_interval (s)"],
            "keep_alive_max_attempt": settings["rdzv keep_alive_max_attempt"],
        }
        agent = {
            "--nnodes": f"{seat.nodes - 1}:{seat.nodes}",
            "--nproc-per-node": 1,
            "--max-restarts": 10_000,
            "--monitor-interval": settings["--monitor-interval (s)"],
            "--shutdown-timeout": settings["--shutdown-timeout (s)"],
            "--rdzv-backend": "c10d",
            "--rdzv-id": "recovery",
            "--rdzv-endpoint": f"{seat.host}:{PORT}",
            "--rdzv-conf": ",".join(f"{key}={value}" for key, value in rendezvous.items()),
            "--local-addr": seat.address,
        }
        training = {
            "--job": seat.job,
            "--steps": seat.folder / "steps",
            "--checkpoint": seat.folder / "checkpoint.pt",
            "--checkpoint-steps": settings["steps between checkpoints"],
            "--nodes": seat.nodes,
            "--seed": seat.number,
            "--timeout-s": settings["gloo timeout (s)"],
        }
        command = [str(self._python), "-m", "torch.distributed.run"]
        command += [str(part) for pair in agent.items() for part in pair]
        command.append(str(TRAIN / "torchrun_train.py"))
        return command + [str(part) for pair in training.items() for part in pair]
