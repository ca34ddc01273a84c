"""job.yaml to a `JobSpec`: strict, and every refusal names the file, the key and what was expected.

The keys are the field names of `JobSpec` and of `TableModel` or `PythonModel`, all at the top level,
and ``kind: table | python``. Their defaults stand in those dataclasses alone.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import typing
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import msgspec

from daisychain.core.job_spec import JobSpec, PythonModel, TableModel, Task
from daisychain.errors import JobError
from daisychain.wire.plain_yaml import Entry, PlainYamlError, read_mapping

KINDS: dict[str, type[TableModel] | type[PythonModel]] = {"table": TableModel, "python": PythonModel}
"""What ``kind`` may say, and the dataclass that holds the kind's own keys."""

RESULT_FOLDER = "result"
"""The folder inside a job's folder that a run replaces."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """What a key takes: in words for people, and as a test of a value that has the right type."""

    expected: str
    fits: Callable[[Any], bool]


def _whole(low: int, high: int) -> _Rule:
    return _Rule(f"a whole number from {low} to {high}", lambda value: low <= value <= high)


def _one_of(*choices: str) -> _Rule:
    return _Rule("one of " + ", ".join(choices), lambda value: value in choices)


def _inside(path: str) -> bool:
    """Whether ``path`` names something in the job's folder and not in its result."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and parts[0] != RESULT_FOLDER


_PATH = _Rule(
    "a path inside the job's folder, with forward slashes, and outside result/ (which each run replaces)",
    lambda value: _inside(value) and "\\" not in value and "\0" not in value and len(value) <= 1024,
)
_FLAG = _Rule("true or false", lambda value: True)
_POSITIVE = _Rule("a number greater than 0", lambda value: math.isfinite(value) and value > 0)
_NOT_NEGATIVE = _Rule("a number of 0 or more", lambda value: math.isfinite(value) and value >= 0)
_FRACTION = _Rule("a number from 0 to less than 1", lambda value: 0 <= value < 1)
_NAME = _Rule("the name of a column (in quotes if it looks like a number)", lambda value: bool(value.strip()))

_RULES: dict[str, _Rule] = {
    "data": _PATH,
    "target": _NAME,
    "task": _one_of(*(task.value for task in Task)),
    "ignore": _Rule("a list of column names, such as [id, date]", lambda value: len(value) <= 4096),
    "hidden": _Rule(
        "a list of up to 32 layer widths from 1 to 65536, such as [128, 64]",
        lambda value: len(value) <= 32 and all(1 <= width <= 65536 for width in value),
    ),
    "activation": _one_of("relu", "tanh", "gelu"),
    "dropout": _FRACTION,
    "optimizer": _one_of("adam", "adamw", "sgd"),
    "learning_rate": _POSITIVE,
    "weight_decay": _NOT_NEGATIVE,
    "file": _PATH,
    "global_batch_size": _whole(1, 1 << 24),
    "epochs": _whole(1, 1_000_000),
    "steps": _whole(1, 1_000_000_000),
    "seed": _whole(0, (1 << 63) - 1),
    "validation": _FRACTION,
    "evaluate_every_epochs": _whole(1, 1_000_000),
    "evaluate_every_steps": _whole(1, 1_000_000_000),
    "clip_grad_norm": _POSITIVE,
    "dtype": _one_of("float32", "float64"),
    "keep_best": _FLAG,
    "early_stopping": _whole(1, 1_000_000),
    "init_from": _PATH,
    "reproducible": _FLAG,
    "granule": _whole(1, 65536),
    "threads": _whole(1, 256),
    "min_nodes": _whole(1, 64),
    "max_nodes": _whole(1, 64),
    "priority": _whole(-10, 10),
}


def parse_job(text: str, where: str = "job.yaml") -> JobSpec:
    """Return the job that ``text`` describes.

    ``where`` names the file in errors. Raises `JobError`, and nothing else, for whatever is wrong:
    no YAML, unknown or repeated keys, wrong types, values out of range, keys that exclude each other.
    Files that the job names are not looked at (see `trainer.load`).
    """
    try:
        entries = read_mapping(text)
    except PlainYamlError as error:
        place = where if error.line is None else f"{where}:{error.line}"
        raise JobError(place, error.message, "See docs/JOBS.md for what a job file looks like.") from None
    return _Reader(entries, where).job()


class _Reader:
    """Turns the entries of one job.yaml into a `JobSpec`."""

    def __init__(self, entries: dict[str, Entry], where: str) -> None:
        self._entries = entries
        self._where = where

    def job(self) -> JobSpec:
        """Return the job; raises `JobError`."""
        model_type = self._kind()
        self._refuse_unknown(model_type)
        model = self._read(model_type)
        self._check_length()
        own: dict[str, Any] = {"model": model, "epochs": None, "steps": None}
        if self._entries.get("evaluate_every_steps", Entry(None, 0)).value is not None:
            own["evaluate_every_epochs"] = None
        spec: JobSpec = self._read(JobSpec, own)
        self._check_together(spec)
        return spec

    def _kind(self) -> type[TableModel] | type[PythonModel]:
        entry = self._entries.get("kind")
        expected = "expected " + " or ".join(f"'kind: {kind}'" for kind in KINDS)
        if entry is None:
            raise JobError(self._where, f"the key kind is missing: {expected}")
        found = KINDS.get(entry.value) if isinstance(entry.value, str) else None
        if found is None:
            raise self._error("kind", f"{expected}, found {_shown(entry.value)}")
        return found

    def _refuse_unknown(self, model_type: type[TableModel] | type[PythonModel]) -> None:
        allowed = {"kind", *_names(JobSpec) - {"model"}, *_names(model_type)}
        if model_type is PythonModel:
            allowed -= {"validation"}  # the user's file splits the data itself
        for key in self._entries:
            if key in allowed:
                continue
            if key == "validation":
                raise self._error(
                    key, "a key of kind: table", "A python job holds data out in dataset('validation')."
                )
            others = [kind for kind, other in KINDS.items() if key in _names(other)]
            if others:
                raise self._error(key, f"a key of kind: {others[0]} only", "Remove it.")
            near = difflib.get_close_matches(key, sorted(allowed), n=1, cutoff=0.5)
            remedy = f"Did you mean {near[0]}?" if near else "docs/JOBS.md lists every key."
            raise self._error(key[:80], "unknown key", remedy)

    def _read(self, target: type[Any], given: dict[str, Any] | None = None) -> Any:
        """Return a ``target`` from the keys that are its fields; ``given`` are those decided already."""
        values = dict(given or {})
        types = typing.get_type_hints(target)
        for field in dataclasses.fields(target):
            if field.name in self._entries:
                values[field.name] = self._value(field.name, types[field.name])
            elif field.name not in values and field.default is dataclasses.MISSING:
                rule = _RULES[field.name]
                raise JobError(self._where, f"the key {field.name} is missing: expected {rule.expected}")
        return target(**values)

    def _value(self, key: str, kind: Any) -> Any:
        entry, rule = self._entries[key], _RULES[key]
        try:
            value = msgspec.convert(entry.value, kind, strict=True)
        except (msgspec.ValidationError, OverflowError):
            raise self._error(key, f"expected {rule.expected}, found {_shown(entry.value)}") from None
        if value is not None and not rule.fits(value):
            raise self._error(key, f"expected {rule.expected}, found {_shown(entry.value)}")
        return value

    def _check_length(self) -> None:
        given = [
            key for key in ("epochs", "steps") if self._entries.get(key, Entry(None, 0)).value is not None
        ]
        if len(given) == 2:
            raise self._error("steps", "epochs and steps are both given", "Keep one of them.")
        if not given:
            raise JobError(
                self._where,
                "neither epochs nor steps is given",
                "Say how long to train, for example 'epochs: 10'.",
            )

    def _check_together(self, spec: JobSpec) -> None:
        """Refuse values that are right by themselves and wrong together."""
        if spec.evaluate_every_epochs is not None and spec.evaluate_every_steps is not None:
            raise self._error(
                "evaluate_every_steps", "evaluate_every_epochs is given too", "Keep one of them."
            )
        if isinstance(spec.model, TableModel) and spec.model.target in spec.model.ignore:
            raise self._error("ignore", f"holds the target column {spec.model.target!r}", "Remove it there.")
        if spec.max_nodes is not None and spec.max_nodes < spec.min_nodes:
            raise self._error(
                "max_nodes", f"is below min_nodes, which is {spec.min_nodes}", "Raise it, or lower min_nodes."
            )
        held_out = not isinstance(spec.model, TableModel) or spec.validation > 0
        evaluates = spec.evaluate_every_epochs is not None or spec.evaluate_every_steps is not None
        for key, wanted in (
            ("keep_best", spec.keep_best),
            ("early_stopping", spec.early_stopping is not None),
        ):
            if wanted and not held_out:
                raise self._error(
                    key, "needs held-out rows, but validation is 0", "Set 'validation: 0.2', or remove it."
                )
            if wanted and not evaluates:
                raise self._error(
                    key, "needs evaluations, but there are none", "Set 'evaluate_every_epochs: 1'."
                )

    def _error(self, key: str, message: str, remedy: str = "") -> JobError:
        return JobError(
            f"{self._where}:{self._entries[key].line if key in self._entries else 1}: {key}", message, remedy
        )


def _names(kind: type[Any]) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def _shown(value: object) -> str:
    """Return ``value`` as an error shows it: as YAML would write it, and short."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case _:
            shown = repr(value)
            return shown if len(shown) <= 60 else shown[:57] + "..."
