"""What an installer found on a machine, told as lines ``key=value``.

scripts/install.sh and scripts/install.ps1 only copy what programs printed. So that old scripts and new images
understand each other, an unknown key is passed over and a missing one is empty.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from daisychain.errors import ConfigError, NetworkError
from daisychain.host.gpu import Gpu, GpuList, parse_gpus
from daisychain.net.discovery.tailnet_status import parse_status

FACTS_BYTES_MAX = 1 << 18
"""Most bytes of facts read: stops a program that prints without end from filling the memory."""

REPEATED = ("gpu",)
"""Keys that may come several times, a line each."""


class System(StrEnum):
    """What kind of machine the containers would run on."""

    LINUX = "Linux"
    WSL = "Windows (WSL)"
    WINDOWS = "Windows"
    MACOS = "macOS"


class Tailscale(StrEnum):
    """Whether the machine itself is on a tailnet."""

    ABSENT = "absent"
    DOWN = "down"  # installed, and not up: logged out, stopped, or its daemon does not run
    USERSPACE = "userspace"  # up, without an interface that gloo could bind
    UP = "up"


@dataclass(frozen=True, slots=True)
class Facts:
    """A machine before the installation.

    Attributes:
        desktop: Docker runs in a virtual machine of Docker Desktop's.
        docker, compose: their versions; None when they are not there or do not answer.
        machine: the processor's kind, as ``uname -m`` says.
        gpus: what nvidia-smi lists.
        toolkit: containers get NVIDIA cards from this Docker.
        tailscale_trouble: why Tailscale is down; empty otherwise.
        uid, gid: of the jobs folder's owner; None where the system has none.
    """

    system: System
    desktop: bool
    docker: tuple[int, ...] | None
    compose: tuple[int, ...] | None
    machine: str
    gpus: GpuList
    toolkit: bool
    tailscale: Tailscale
    tailscale_trouble: str
    host_name: str
    uid: int | None
    gid: int | None

    @property
    def virtual(self) -> bool:
        """Whether containers live in a virtual machine behind an address that peers cannot reach."""
        return self.desktop or self.system is not System.LINUX


def read_facts(text: str) -> Facts:
    """Return the facts that the lines tell. Raises `ConfigError` when they name no system."""
    told: dict[str, str] = {}
    for line in text.splitlines():
        key, separator, value = line.strip().partition("=")
        if separator and key in REPEATED and key in told:
            told[key] += f"\n{value.strip()}"
        elif separator:
            told[key] = value.strip()
    system = _system(told.get("os", ""), told.get("kernel", ""))
    tailscale, trouble = _tailscale(told)
    return Facts(
        system=system,
        desktop="docker desktop" in told.get("docker_os", "").lower(),
        docker=_version(told.get("docker", "")),
        compose=_version(told.get("compose", "")),
        machine=told.get("machine", "").lower(),
        gpus=_gpus(told),
        toolkit=_toolkit(told, system),
        tailscale=tailscale,
        tailscale_trouble=trouble,
        host_name=told.get("host_name", ""),
        uid=_number(told.get("uid", "")),
        gid=_number(told.get("gid", "")),
    )


def _system(name: str, kernel: str) -> System:
    match name.lower():
        case "linux":
            return System.WSL if "microsoft" in kernel.lower() else System.LINUX
        case "darwin":
            return System.MACOS
        case "windows":
            return System.WINDOWS
        case _:
            raise ConfigError(
                f"the facts name no known system (os={name!r})",
                "Run scripts/install.sh (Linux, macOS, WSL) or scripts/install.ps1 (Windows)",
            )


def _gpus(told: dict[str, str]) -> GpuList:
    gpus: tuple[Gpu, ...] = parse_gpus(told.get("gpu", ""))
    if gpus:
        return GpuList(gpus, "")
    return GpuList((), told.get("gpu_trouble") or told.get("gpu") or "no NVIDIA driver is installed")


def _toolkit(told: dict[str, str], system: System) -> bool:
    """Return whether containers get cards: by the toolkit's runtime or CDI, or as Docker Desktop does."""
    if "docker desktop" in told.get("docker_os", "").lower():
        return system in (System.WINDOWS, System.WSL)
    return "nvidia" in told.get("docker_runtimes", "").lower() or "nvidia.com/gpu" in told.get(
        "docker_cdi", ""
    )


def _tailscale(told: dict[str, str]) -> tuple[Tailscale, str]:
    status, trouble = told.get("tailscale", ""), told.get("tailscale_trouble", "")
    if not status:
        return (Tailscale.DOWN, trouble) if trouble else (Tailscale.ABSENT, "")
    try:
        parsed = parse_status(status)
    except NetworkError as error:
        return Tailscale.DOWN, error.message
    return (Tailscale.USERSPACE if parsed.userspace else Tailscale.UP), ""


def _version(text: str) -> tuple[int, ...] | None:
    """Return the leading numbers of ``v2.26.1-4`` or ``28.2.2``; None without any."""
    found = re.match(r"v?(\d{1,6}(?:\.\d{1,6}){1,3})", text)
    return tuple(map(int, found[1].split("."))) if found else None


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() and len(text) < 11 else None
