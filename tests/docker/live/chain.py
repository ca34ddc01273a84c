"""A chain of containers: compose starts and ends it, the tests watch it by its volumes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from daisychain.core.jobs import JobState
from docker.engine.engine import Engine
from docker.live.container import Container
from docker.live.job import NAME, write_live_job
from support.waiting import until

FILES = ("compose/demo.yaml", "tests/docker/live/compose.yaml")
PROJECT = "daisychain-live"
NAMES = ("ada", "bob", "cleo")
FINISH_S = 60.0


class LiveChain:
    """Up to three containers named `NAMES`; `up` starts them."""

    def __init__(self, engine: Engine, folder: Path, files: Sequence[str]) -> None:
        self.engine = engine
        self.folder = folder
        self._files = [part for file in files for part in ("--file", file)]
        self._settings = {"LIVE_JOB": str(write_live_job(folder / NAME)), "LIVE_FOLDER": str(folder)}

    def compose(self, *arguments: str) -> str:
        return self.engine.compose(self._settings, *self._files, *arguments)

    def up(self, *names: str) -> list[Container]:
        """Start these nodes, and return them."""
        self.compose("up", "--detach", "--no-build", *names)
        return [self._container(name) for name in names]

    def down(self) -> None:
        """Remove everything of it."""
        self.compose("down", "--volumes", "--timeout", "5")

    def forget(self, name: str) -> None:
        """Remove a node's container and all that it kept: started again it is one that was never there."""
        self.compose("rm", "--stop", "--force", name)
        self.engine.docker("volume", "rm", *(f"{PROJECT}_{name}-{kind}" for kind in ("state", "jobs")))

    def leftovers(self) -> str:
        """Return the ids of containers, volumes and networks that are still there."""
        label = ("--filter", f"label=com.docker.compose.project={PROJECT}", "--quiet")
        return "".join(
            self.engine.docker(*what, *label)
            for what in (("ps", "--all"), ("volume", "ls"), ("network", "ls"))
        )

    def finish(self, nodes: Sequence[Container]) -> None:
        """Have the run end, and wait until each of ``nodes`` has its result."""
        for node in nodes:
            (node.run_folder() / "end").touch()
        for node in nodes:
            until(partial(_finished, node), FINISH_S, f"{node.name} does not finish the run")

    def _container(self, name: str) -> Container:
        """Return a node whose folders are its volumes, by paths that are short enough for a socket's."""
        for kind in ("state", "jobs"):
            link = self.folder / f"{name}-{kind}"
            if not link.is_symlink():
                link.symlink_to(self._mountpoint(f"{PROJECT}_{name}-{kind}"))
        return Container(
            name,
            self.folder / f"{name}-state",
            self.folder / f"{name}-jobs",
            engine=self.engine,
            project=PROJECT,
        )

    def _mountpoint(self, volume: str) -> Path:
        told = self.engine.docker("volume", "inspect", "--format", "{{.Mountpoint}}", volume).strip()
        if not os.access(told, os.W_OK):
            pytest.skip(
                "the engine's volumes are not here, or not for this user: its chains cannot be watched"
            )
        return Path(told)


def _finished(node: Container) -> bool:
    return node.state_of(NAME) is JobState.FINISHED


@contextmanager
def live_chain(engine: Engine, files: Sequence[str] = FILES) -> Iterator[LiveChain]:
    """Give a chain, still empty; it is taken down with the context, and must leave nothing."""
    with tempfile.TemporaryDirectory(prefix="live-") as name:
        chain = LiveChain(engine, Path(name), files)
        chain.down()  # of a test that was killed
        try:
            yield chain
        except BaseException:
            print(chain.compose("logs", "--no-color", "--tail", "60"))  # shown with the failure
            raise
        finally:
            chain.down()
        assert chain.leftovers() == "", "`down` left something"
