"""A Docker daemon of the tests' own: its own socket and folder, no hand in the machine's firewall."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from docker.engine.requirements import DockerUnavailable, answers
from support.waiting import until

START_S = 60.0
STOP_S = 30.0
LOCK = Path("/run/daisychain-test-docker.lock")


@contextmanager
def daemon(log: Path) -> Iterator[str]:
    """Run a daemon and give its address; it ends, and its folder goes, with the context.

    Raises `DockerUnavailable` when it does not start, or another daemon is there: two disturb each other.
    """
    client = "/usr/bin/docker" if Path("/usr/bin/docker").exists() else "docker"
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        others = [p.pid for p in psutil.process_iter(["name"]) if p.info["name"] == "dockerd"]
        if others:
            raise DockerUnavailable(f"a Docker daemon runs (process {others[0]}) that does not answer")
        folder = Path(tempfile.mkdtemp(prefix="daisychain-docker-"))
        address = f"unix://{folder}/docker.sock"
        try:
            process = _start(folder, address, log)
            try:
                until(
                    lambda: process.poll() is not None or _ready(client, address), START_S, "dockerd starts"
                )
                if process.poll() is not None:
                    last = log.read_text(errors="replace").strip().splitlines()[-1:]
                    raise DockerUnavailable(f"dockerd ended at once: {''.join(last)[-300:]}")
                yield address
            finally:
                _stop(process)
        finally:
            _clear(folder)


def _start(folder: Path, address: str, log: Path) -> subprocess.Popen[bytes]:
    command = ["dockerd", "--host", address, "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec"]
    command += ["--pidfile", f"{folder}/docker.pid", "--bridge", "none"]
    # networks of the tests carry their own containers' packets and nothing else: none leaves the machine
    command += ["--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"]
    with log.open("ab") as out:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )


def _ready(client: str, address: str) -> bool:
    os.environ["DOCKER_HOST"] = address
    return answers(client)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the daemon and the containerd that it started, by their ids."""
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_S)
    _, alive = psutil.wait_procs(family[1:], timeout=STOP_S)
    for one in alive:
        one.kill()
    os.environ.pop("DOCKER_HOST", None)


def _clear(folder: Path) -> None:
    """Remove the daemon's folder with whatever it left mounted there."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "-l", mount], check=False, capture_output=True, timeout=30)
    shutil.rmtree(folder, ignore_errors=True)
