"""A stand-in tailnet between containers: a WireGuard TUN named tailscale0 in each, no multicast, MTU 1280.

The packets between them are encrypted and travel over the containers' own network, as a tailnet's do.
"""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from docker.engine.requirements import INSTALL_S
from docker.live.container import Container
from support.tailscale_json import peer, status
from support.waiting import until

PACKAGES = ("wireguard-go", "wireguard-tools")
PORT = 51820
UP_S = 15.0
LOGIN_PAGE = "https://login.example.org/a/1234"

# Its socket's folder is by a fixed path, so each daemon has a file system of its own there.
DAEMON = """
mount -t tmpfs none /var/run && mkdir -p /var/run/wireguard || exit 1
wireguard-go -f tailscale0 & daemon=$!
until wg show tailscale0 >/dev/null 2>&1; do kill -0 $daemon || exit 1; sleep 0.05; done
wg setconf tailscale0 "$1" && ip address add "$2/32" dev tailscale0 &&
ip link set tailscale0 mtu 1280 up && ip route add 100.64.0.0/24 dev tailscale0 || kill $daemon
wait $daemon
"""


def install_wireguard() -> None:
    """Install Debian's user-space WireGuard where it is missing; skip the test where it cannot be had."""
    if shutil.which("wireguard-go") and shutil.which("wg"):
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip("a stand-in tailnet needs wireguard-go and wg, and installing them needs root on Debian")
    command = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *PACKAGES]
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-q"], check=True, capture_output=True, timeout=INSTALL_S)
    subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_S, env=environment)


class Tailnet:
    """The tailnet of some containers; none of them is in it yet."""

    def __init__(self, names: Sequence[str], folder: Path) -> None:
        self._folder = folder
        self._keys = {name: _run("wg", "genkey") for name in names}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.addresses = {name: f"100.64.0.{index}" for index, name in enumerate(names, 1)}
        for name in names:
            self._of(name).mkdir()
            self._say(name, BackendState="NeedsLogin", AuthURL=LOGIN_PAGE)

    def join(self, joining: Sequence[Container], nodes: Sequence[Container]) -> None:
        """Give each of ``joining`` its tailscale0, with all the others of ``nodes`` as its peers."""
        ends = {node.name: f"{_address(node)}:{PORT}" for node in nodes}
        for node in joining:
            settings = self._folder / f"{node.name}.conf"
            settings.write_text(self._settings(node.name, ends))
            entering = ["nsenter", "--target", str(node.pid), "--net", "unshare", "--mount"]
            shell = ["sh", "-c", DAEMON, "sh", str(settings), self.addresses[node.name]]
            log = (self._folder / f"{node.name}.wireguard").open("wb")
            with log:
                self._daemons[node.name] = subprocess.Popen(
                    [*entering, *shell],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        for node in joining:
            until(lambda node=node: "tailscale0" in counters(node), UP_S, f"{node.name} gets no tailscale0")  # type: ignore[misc]
            self._say(node.name)

    def leave(self, node: Container) -> None:
        """Take a container's tailscale0 away, as a daemon that is stopped does."""
        self._say(node.name, BackendState="Stopped")
        self._end(node.name)
        until(lambda: "tailscale0" not in counters(node), UP_S, f"{node.name} keeps its tailscale0")

    def end(self) -> None:
        for name in list(self._daemons):
            self._end(name)

    def _end(self, name: str) -> None:
        daemon = self._daemons.pop(name)
        if daemon.poll() is None:
            os.killpg(daemon.pid, signal.SIGTERM)
        daemon.wait(10)

    def _settings(self, name: str, ends: dict[str, str]) -> str:
        lines = ["[Interface]", f"PrivateKey = {self._keys[name]}", f"ListenPort = {PORT}"]
        for other, end in ends.items():
            if other != name:
                public = _run("wg", "pubkey", given=self._keys[other])
                lines += ["[Peer]", f"PublicKey = {public}", f"Endpoint = {end}"]
                lines.append(f"AllowedIPs = {self.addresses[other]}/32")
        return "\n".join(lines) + "\n"

    def _of(self, name: str) -> Path:
        """Return the folder that a node sees at /run/tailscale."""
        return self._folder / f"tailscale-{name}"

    def _say(self, name: str, **changes: str) -> None:
        """Have a node's Tailscale say so from now on."""
        number = {each: int(host.rpartition(".")[2]) for each, host in self.addresses.items()}
        others = [peer(number[each], HostName=each) for each in number if each != name]
        told = status(*others, Self=peer(number[name], HostName=name), **changes)
        part = self._of(name) / "status.part"
        part.write_text(json.dumps(told))
        part.rename(self._of(name) / "status.json")


@contextmanager
def tailnet(names: Sequence[str], folder: Path) -> Iterator[Tailnet]:
    """Give the tailnet of containers with these names; its daemons end with the context."""
    install_wireguard()
    it = Tailnet(names, folder)
    try:
        yield it
    finally:
        it.end()


def counters(node: Container) -> dict[str, tuple[int, int]]:
    """Return the bytes that each interface of a container has received and sent."""
    found = {}
    for line in Path(f"/proc/{node.pid}/net/dev").read_text().splitlines()[2:]:
        name, _, numbers = line.partition(":")
        received, sent = numbers.split()[0], numbers.split()[8]
        found[name.strip()] = (int(received), int(sent))
    return found


def tcp_hosts(node: Container) -> set[str]:
    """Return the local addresses of a container's TCP sockets, listening or connected; not loopback's."""
    found = set()
    for line in Path(f"/proc/{node.pid}/net/tcp").read_text().splitlines()[1:]:
        number = int(line.split()[1].partition(":")[0], 16)
        host = ipaddress.ip_address(socket.inet_ntoa(struct.pack("<I", number)))
        if not host.is_loopback:
            found.add(str(host))
    return found


def _address(node: Container) -> str:
    return node.inspect("{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}")


def _run(*command: str, given: str = "") -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()
