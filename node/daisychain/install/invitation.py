"""The lines that make another machine a node of this chain, in a container or without one."""

from __future__ import annotations

from pathlib import Path

IMAGE_FOLDER = Path("/opt/daisychain/image")
"""What only the project's own images have."""


def in_our_image() -> bool:
    """Return whether this program runs in one of the project's images: it is called in another way there."""
    return IMAGE_FOLDER.is_dir()


def invitation(key: str, *, container: bool) -> tuple[str, ...]:
    """Return what to run on every other machine; the first line introduces the others."""
    if not container:
        return ("On every other machine run:", f"  daisychain key join {key}", "  daisychain node")
    return (
        "On every other machine, in its own copy of DaisyChain's folder:",
        f"  scripts/install.sh --key {key} && docker compose up --detach",
        f"  (Windows: scripts\\install.ps1 --key {key}; docker compose up --detach)",
    )
