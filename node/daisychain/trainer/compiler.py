"""Keeps torch's compiler out of a trainer until somebody compiles.

Every optimizer of torch imports `torch._dynamo` with its first step, only to tell a compiler that does not
run where its graph would end. That import is half of the start of a trainer and a quarter of its memory, and
the calls cost time in every step. So a stand-in takes the place of the module: it answers those two calls by
itself, and becomes the real module with the first use of anything else in it, as `torch.compile` makes.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

NAME = "torch._dynamo"


class LazyCompiler(ModuleType):
    """Stands for `torch._dynamo` while nothing is compiled."""

    def graph_break(self, *_: object, **__: object) -> None:
        """Do nothing: no graph is being made."""

    def disable(self, fn: Any = None, recursive: bool = True, **options: Any) -> Any:
        """Return ``fn`` for torch's own functions, which nobody compiles; load the compiler for others."""
        if fn is not None and options == {"wrapping": False}:  # only torch's internals ask so
            return fn
        return _load().disable(fn, recursive, **options)

    def __getattr__(self, name: str) -> Any:
        # `inspect` asks every module for its __file__; only __path__ is asked by an import of what lies below
        if name.startswith("__") and name != "__path__":
            raise AttributeError(f"{NAME} is not loaded and has no {name} yet")
        return getattr(_load(), name)


def postpone() -> None:
    """Put the stand-in in place, unless the compiler is loaded already; the process's entry calls it."""
    sys.modules.setdefault(NAME, LazyCompiler(NAME, __doc__))


def _load() -> ModuleType:
    """Return the real module, loaded in the place of the stand-in."""
    if isinstance(sys.modules.get(NAME), LazyCompiler):
        del sys.modules[NAME]
    return importlib.import_module(NAME)
