"""Which torch is installed, told without importing it: the agent must stay small."""

from __future__ import annotations

import importlib.metadata


def torch_version() -> str | None:
    """Return the installed torch's version, e.g. ``2.13.0+cpu``; None when there is none."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def is_cpu_build(version: str) -> bool:
    """Return whether that build of torch cannot use a GPU at all."""
    return version.partition("+")[2].startswith("cpu")
