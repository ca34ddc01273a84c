"""The user's Python file: imported under a name of its own, and called so that errors name its lines."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from daisychain.errors import DaisyChainError, JobError

MEMORY_REMEDY = "Make the model, the granule or the global batch smaller"

_MEMORY_WORDS = ("can't allocate memory", "out of memory", "bad_alloc")


class UserCode:
    """One imported file of a job.

    Its folder comes first on the import path, as for a script. No byte code is written from then on: the
    job's folder is the user's. Errors become `JobError` with the last line of the job's own files on
    their way; running out of memory is no fault of the code and passes through.
    """

    def __init__(self, folder: Path, file: Path) -> None:
        self._folder = folder.resolve()
        self.name = (
            file.resolve().relative_to(self._folder).as_posix() if _within(file, folder) else file.name
        )
        sys.dont_write_bytecode = True
        own_folder = str(file.parent.resolve())
        if own_folder not in sys.path:
            sys.path.insert(0, own_folder)
        self._module = self.call("", self._import, file)

    def function(self, name: str) -> Callable[..., Any] | None:
        """Return the function ``name`` of the file, or None; raises `JobError` when it is no function."""
        found = getattr(self._module, name, None)
        if found is not None and not callable(found):
            raise JobError(f"{self.name}: {name}", "is not a function", f"Define it with 'def {name}(...)'.")
        return found

    def needed(self, name: str, signature: str, gives: str) -> Callable[..., Any]:
        """Return the function ``name``; raises `JobError` that tells its signature when it is absent."""
        found = self.function(name)
        if found is None:
            raise JobError(self.name, f"has no function {signature}", f"Define it; it returns {gives}.")
        return found

    def call(self, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return ``function(*arguments)``; ``what`` names the function in errors (empty: the import)."""
        try:
            return function(*arguments)
        except DaisyChainError:
            raise
        except (Exception, SystemExit) as error:
            if wants_memory(error):
                raise
            where = self.locate(error) or (f"{self.name}: {what}" if what else self.name)
            told = " ".join(str(error).split())
            if len(told) > 500:
                told = told[:497] + "..."
            doing = f"{what}() raised" if what else "cannot be imported:"
            raise JobError(
                where, f"{doing} {type(error).__name__}: {told}", "Correct it and submit again."
            ) from error

    def _import(self, file: Path) -> ModuleType:
        unique = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:12]
        name = f"daisychain_job_{unique}"
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise JobError(f"job.yaml: file: {self.name}", "not a Python file", "Its name must end in .py.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses and pickles look their module up there
        spec.loader.exec_module(module)
        return module

    def locate(self, error: BaseException) -> str:
        """Return ``file:line`` of the innermost frame in the job's folder; empty when there is none."""
        if isinstance(error, SyntaxError) and error.filename and _within(Path(error.filename), self._folder):
            return f"{self._relative(error.filename)}:{error.lineno}"
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            if _within(Path(frame.filename), self._folder):
                return f"{self._relative(frame.filename)}:{frame.lineno}"
        return ""

    def _relative(self, filename: str) -> str:
        return Path(filename).resolve().relative_to(self._folder).as_posix()


def wants_memory(error: BaseException) -> bool:
    """Whether an exception says that memory did not suffice."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    # torch's own on the host is a plain RuntimeError
    return isinstance(error, RuntimeError) and any(each in str(error) for each in _MEMORY_WORDS)


def _within(file: Path, folder: Path) -> bool:
    return file.resolve().is_relative_to(folder.resolve())
