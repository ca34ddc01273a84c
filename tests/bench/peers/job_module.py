"""The very file that DaisyChain trains, as a module, for a competitor's training program."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType


def load(path: Path) -> ModuleType:
    """Return the module in the file ``path``."""
    spec = importlib.util.spec_from_file_location("job", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
