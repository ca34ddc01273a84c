"""Amounts of memory as people read them, and the one sentence that says a model does not fit a node."""

from __future__ import annotations

GB = 10**9
MB = 10**6


def in_words(size_bytes: int) -> str:
    """Return an amount with a unit and one decimal: ``3.1 GB``, ``0.4 MB``."""
    unit, name = (GB, "GB") if size_bytes >= GB / 10 else (MB, "MB")
    return f"{size_bytes / unit:.1f} {name}"


def too_big(needs_bytes: int, has_bytes: int, at_least: bool = False) -> str:
    """Return why a node cannot hold a job's model; empty when it can.

    ``needs_bytes``: of the model, its gradients and its optimizer's state; ``at_least``: part of it is not
    known. ``has_bytes``: what the node's memory, its container, its owner or its graphics card leave for it.
    """
    if needs_bytes <= has_bytes:
        return ""
    least = "at least " if at_least else ""
    return (
        f"needs {least}{in_words(needs_bytes)}, has {in_words(has_bytes)}: every node holds the whole model"
    )
