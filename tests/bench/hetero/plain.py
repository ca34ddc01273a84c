"""What a person would use instead: a plain loop on each machine by itself, or torchrun with DDP."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.hetero.marks import Mark
from bench.peers.processes import PeerNode
from bench.peers.system import Seat, Service
from daisychain.host.versions import torch_version
from rig.node import Place
from support.waiting import until

TRAIN = Path(__file__).with_name("plain_train.py")
PORT = 29500
LOADED_S = 120.0


class PlainLoop:
    """A plain PyTorch loop that takes the whole batch, on a machine by itself."""

    name = "plain loop"
    version = torch_version() or ""
    one_process = True
    settings: Mapping[str, object] = {}
    environment: Mapping[str, str] = {}

    def __init__(self, batch: int) -> None:
        self._batch = batch

    def service(self, seat: Seat) -> Service | None:
        """Return None: nothing else runs."""
        return None

    def node(self, seat: Seat) -> list[str]:
        """Return the loop's command."""
        return [sys.executable, *training(seat, self._batch, self._batch)]


class Ddp:
    """torchrun, as it is started by hand on machines with names, and DDP over gloo.

    ``shares``: of each step, by rank. The static rendezvous asks nobody to stay in touch, so it stands still
    and goes on without a restart.
    """

    version = torch_version() or ""
    one_process = False
    environment: Mapping[str, str] = {}

    def __init__(self, name: str, shares: Sequence[int], port: int = PORT) -> None:
        self.name = name
        self.settings: Mapping[str, object] = {"shares": list(shares), "rendezvous": "static"}
        self._shares = shares
        self._port = port

    def service(self, seat: Seat) -> Service | None:
        """Return None: rank 0 hosts the rendezvous."""
        return None

    def node(self, seat: Seat) -> list[str]:
        """Return torchrun's command."""
        given = {
            "--nnodes": seat.nodes,
            "--node-rank": seat.number,
            "--nproc-per-node": 1,
            "--master-addr": seat.host,
            "--master-port": self._port,
            "--local-addr": seat.address,
        }
        command = [sys.executable, "-m", "torch.distributed.run"]
        command += [str(part) for pair in given.items() for part in pair]
        return command + training(seat, self._shares[seat.number], sum(self._shares))


def training(seat: Seat, share: int, batch: int) -> list[str]:
    """Return the training program and its arguments."""
    given = {
        "--job": seat.job,
        "--steps": seat.folder / "steps",
        "--share": share,
        "--batch": batch,
        "--seed": 1000 + seat.number,
    }
    return [str(TRAIN), *(str(part) for pair in given.items() for part in pair)]


class PlainTraining:
    """One of these systems on all machines; it stands still but for its turns."""

    def __init__(
        self, system: PlainLoop | Ddp, places: Sequence[Place], folder: Path, job: Path, batch: int
    ) -> None:
        """``batch``: samples of a step, of each loop by itself or of all ranks together."""
        self.name = system.name
        self._batch = batch
        self._joint = isinstance(system, Ddp)
        folder.mkdir(parents=True)
        hosts = folder / "hosts"
        names = [f"{place.address} {place.name}" for place in places]
        hosts.write_text("\n".join(["127.0.0.1 localhost", *names]) + "\n")
        self._nodes = [
            PeerNode(
                system,
                Seat(
                    number=number,
                    name=place.name,
                    address=place.address,
                    host=places[0].address,
                    nodes=len(places),
                    folder=folder / place.name,
                    job=job,
                    hosts=hosts,
                ),
                place,
            )
            for number, place in enumerate(places)
        ]

    def start(self) -> None:
        """Start it and wait until it trains; it stands still then."""
        for node in self._nodes:
            node.start()
        try:
            until(lambda: all(map(len, self.marks())), LOADED_S, f"{self.name} does not train")
        except AssertionError as error:
            tails = "\n".join(f"--- {node.seat.name}\n{node.tail()}" for node in self._nodes)
            raise AssertionError(f"{error}\n{tails}") from None
        self.pause()

    def resume(self) -> None:
        """Have it go on."""
        for node in self._nodes:
            node.thaw()

    def pause(self) -> None:
        """Have every process of it stand still."""
        for node in self._nodes:
            node.freeze()

    def marks(self) -> list[list[Mark]]:
        """Return the marks of each training that goes by itself."""
        told = self._nodes[:1] if self._joint else self._nodes
        return [[Mark(line.at, line.step * self._batch) for line in node.log.read()] for node in told]

    def close(self) -> None:
        """End every process."""
        for node in self._nodes:
            node.thaw()
            node.end()
