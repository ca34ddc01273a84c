"""Executables that stand in for programs which are not on a test machine."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def stand_in(folder: Path, name: str, body: str) -> Path:
    """Return an executable file ``name`` in ``folder`` that runs ``body`` as Python."""
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(TESTS)!r})\n{body}\n")
    path.chmod(0o755)
    return path


def tailscale(folder: Path, *mode: str) -> Path:
    """Return an executable `tailscale` that behaves as `fake_tailscale` says of ``mode``."""
    body = f"from support.fake_tailscale import main\nsys.exit(main([*{list(mode)!r}, *sys.argv[1:]]))"
    return stand_in(folder, "tailscale", body)
