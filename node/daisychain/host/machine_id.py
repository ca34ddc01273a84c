"""An id that tells this machine from a clone of its disk.

Two machines with one node id, because a state folder or a whole disk was copied, are told apart by it. A
cloned disk has the same /etc/machine-id, so what the hardware says is hashed in: DMI's UUID (readable by
root alone) and the permanent addresses of its network cards. In a container, where the image's files may be
alike everywhere and the cards are invisible, the container's own name is hashed in instead. The id changes
when a network card does; that is harmless, since ids are only compared between nodes alive at once.
"""

from __future__ import annotations

import hashlib
import socket
import uuid
from pathlib import Path

MACHINE_ID_FILES = ("etc/machine-id", "var/lib/dbus/machine-id")
DMI_UUID = "sys/class/dmi/id/product_uuid"
NET_DEVICES = "sys/class/net"
CONTAINER_MARKS = (".dockerenv", "run/.containerenv")
PERMANENT = "0"
"""NET_ADDR_PERM of linux/netdevice.h: the address is the card's own."""


def machine_id(root: Path = Path("/"), host_name: str | None = None) -> str:
    """Return 32 lower-case hex digits: the same at every start of this machine, another on any other."""
    parts = [f"file {text}" for name in MACHINE_ID_FILES if (text := _read(root / name))][:1]
    if dmi := _read(root / DMI_UUID):
        parts.append(f"dmi {dmi}")
    parts += [f"card {address}" for address in _card_addresses(root)]
    if in_container(root):
        parts.append(f"container {host_name or socket.gethostname()}")
    if not parts:  # macOS, Windows
        parts.append(f"node {uuid.getnode():012x}")
    return hashlib.sha256("\n".join(["daisychain machine", *parts]).encode()).hexdigest()[:32]


def in_container(root: Path = Path("/")) -> bool:
    """Return whether this process runs in a Docker or Podman container."""
    return any((root / mark).exists() for mark in CONTAINER_MARKS)


def _card_addresses(root: Path) -> list[str]:
    """Return the permanent addresses of real network cards: those with a device behind them."""
    try:
        devices = sorted((root / NET_DEVICES).iterdir())
    except OSError:
        return []
    return [
        address
        for device in devices
        if (device / "device").exists()
        and _read(device / "addr_assign_type") == PERMANENT
        and (address := _read(device / "address"))
    ]


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace").strip()
    except OSError:
        return ""
