"""The engine as the tests use it: its client, its compose, and the images that stand in for a registry's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from docker.engine.base_image import bootstrap
from docker.engine.daemon import daemon
from docker.engine.requirements import DockerUnavailable, answers, install_engine
from docker.engine.wheels import served_wheels

ROOT = Path(__file__).parents[3]
TAILSCALE_STAND_IN = "daisychain-tests/tailscale"
BUILD_S = 420.0


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that answers.

    Attributes:
        client: the docker command.
        compose_command: a Compose of version 2.
        environment: with which both are called.
        registry: whether images can be had from a registry (a machine's own engine) or stand-ins are made.
    """

    client: str
    compose_command: tuple[str, ...]
    environment: dict[str, str]
    registry: bool

    def docker(self, *arguments: str, timeout_s: float = 60.0, check: bool = True) -> str:
        """Return what a docker command prints; with ``check`` its complaint fails the test."""
        return self._run([self.client, *arguments], timeout_s, check, {})

    def compose(self, settings: dict[str, str], *arguments: str) -> str:
        """Return what a compose command prints; ``settings`` as .env would give them."""
        return self._run([*self.compose_command, *arguments], 90.0, True, settings)

    def build(self, dockerfile: str, tag: str, *options: str) -> None:
        """Build one of the project's Dockerfiles, unchanged."""
        index = ("--build-arg", f"TORCH_INDEX={os.environ.get('TORCH_INDEX', '')}")
        command = ["build", "--file", str(ROOT / dockerfile), "--tag", tag, *index, *options]
        if self.registry:
            self.docker(*command, str(ROOT), timeout_s=BUILD_S)
            return
        with served_wheels() as pip_conf, tempfile.TemporaryDirectory(prefix="daisychain-base-") as folder:
            self._stand_in_for_debian(Path(folder), dockerfile, pip_conf)
            self._stand_in_for_tailscale(Path(folder))
            stand_in = ("--build-arg", f"TAILSCALE_IMAGE={TAILSCALE_STAND_IN}", "--network", "host")
            self.docker(*command, *stand_in, str(ROOT), timeout_s=BUILD_S)

    def _stand_in_for_debian(self, folder: Path, dockerfile: str, pip_conf: str) -> None:
        base = folder / "base"
        bootstrap(base, pip_conf)
        self._import(base, debian_image(dockerfile))

    def _stand_in_for_tailscale(self, folder: Path) -> None:
        root = folder / "tailscale"
        command = root / "usr/local/bin/tailscale"
        command.parent.mkdir(parents=True)
        shutil.copy(Path(__file__).with_name("tailscale.py"), command)
        command.chmod(0o755)
        self._import(root, TAILSCALE_STAND_IN)

    def _import(self, root: Path, name: str) -> None:
        with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as tar:
            subprocess.run(
                [self.client, "import", "-", name],
                stdin=tar.stdout,
                check=True,
                capture_output=True,
                timeout=120,
                env=self.environment,
            )

    def _run(self, command: list[str], timeout_s: float, check: bool, variables: dict[str, str]) -> str:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            cwd=ROOT,
            env=self.environment | variables,
        )
        if check and done.returncode != 0:
            told = f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
            raise AssertionError(f"{' '.join(command)} ended with {done.returncode}:\n{told}")
        return done.stdout


def debian_image(dockerfile: str) -> str:
    """Return the base image that a Dockerfile names."""
    found = re.search(r"^ARG DEBIAN_IMAGE=(\S+)$", (ROOT / dockerfile).read_text(), re.MULTILINE)
    assert found is not None, f"{dockerfile} names no base image"
    return found.group(1)


@contextmanager
def engine(log: Path) -> Iterator[Engine]:
    """Give the machine's engine, or make one. Raises `DockerUnavailable` where neither can be had."""
    compose = os.environ.get("DAISYCHAIN_TEST_COMPOSE", "docker compose").split()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("DAISYCHAIN_")}
    if answers():
        yield Engine("docker", tuple(compose), inherited, registry=True)
        return
    install_engine()
    client = "/usr/bin/docker" if Path("/usr/bin/docker").exists() else "docker"
    if shutil.which(compose[0]) is None:
        raise DockerUnavailable(f"there is no {compose[0]}")
    with daemon(log) as address:
        environment = inherited | {"DOCKER_HOST": address, "DOCKER_BUILDKIT": "1"}
        yield Engine(client, tuple(compose), environment, registry=False)
