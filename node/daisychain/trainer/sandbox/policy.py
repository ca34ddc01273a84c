"""Which paths job code may touch, and how: a function of facts. Pure; the kernel's part is `landlock`.

The kernel knows permissions only, no exceptions: whatever lies below a folder that may be read may be read.
So where something hidden lies below such a folder, the folder's other entries are permitted one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

ENTRIES_MAX = 2000
"""Most entries of one folder that are permitted one by one; a larger one (a mail spool) is left out whole."""


class Access(StrEnum):
    """What may be done with a path and all below it."""

    LIST = "list"  # see the names in it
    READ = "read"  # read, list and execute
    DEVICE = "device"  # read, write and control a device
    WRITE = "write"  # everything that a user does with files


@dataclass(frozen=True, slots=True)
class Facts:
    """What the policy is made of; every path absolute, with no symbolic link in it.

    Attributes:
        readable: the interpreter, its packages, the system's libraries.
        importable: folders that Python looks for modules in; they are readable, and their names are seen.
        devices: of the machine: null, random numbers, graphics cards.
        shared: folders that any process of the machine may write (shared memory).
        job_folder, run_folder: of this run.
        cache_folder: this node's converted data; None for a job with code of its own, which could read what
            other jobs left there, or change it.
        hidden: the state folder, the key's file, the jobs folder.
    """

    readable: tuple[str, ...]
    importable: tuple[str, ...]
    devices: tuple[str, ...]
    shared: tuple[str, ...]
    job_folder: str
    run_folder: str
    cache_folder: str | None
    hidden: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """A permission: ``access`` to ``path`` and all below it."""

    path: str
    access: Access


@dataclass(frozen=True, slots=True)
class Policy:
    """All that is permitted, and what could not be hidden or permitted, in words."""

    rules: tuple[Rule, ...]
    notes: tuple[str, ...]


def make_policy(facts: Facts, entries: Callable[[str], Iterable[str]]) -> Policy:
    """Return what job code may do.

    ``entries`` gives the paths in a folder; it is asked only on the way to something hidden.
    """
    rules: dict[Rule, None] = {}
    notes: list[str] = []
    for access, paths in (
        (Access.READ, _outermost((*facts.readable, *facts.importable))),
        (Access.WRITE, facts.shared),
    ):
        for path in paths:
            told, permitted = _around(path, access, facts, entries)
            rules |= dict.fromkeys(permitted)
            notes += told
    rules |= dict.fromkeys(Rule(path, Access.DEVICE) for path in facts.devices)
    for own in filter(None, (facts.job_folder, facts.run_folder, facts.cache_folder)):
        rules[Rule(own, Access.WRITE)] = None
        notes += [
            f"{hidden} lies in {own}, so job code can reach it"
            for hidden in facts.hidden
            if _below(hidden, own)
        ]
    return Policy(tuple(rules), tuple(notes))


def _around(
    path: str, access: Access, facts: Facts, entries: Callable[[str], Iterable[str]]
) -> tuple[list[str], list[Rule]]:
    """Return notes and rules that permit ``access`` to ``path``, except to what is hidden at or below it."""
    if path in facts.hidden:
        if path in (facts.job_folder, facts.run_folder):
            return [], []
        return [f"{path} is on the way of Python's imports, and hidden from job code all the same"], []
    if not any(_below(hidden, path) for hidden in facts.hidden):
        return [], [Rule(path, access)]
    inside = list(entries(path))
    if len(inside) > ENTRIES_MAX:
        return [f"{path} has {len(inside)} entries, something hidden below it, and is hidden whole"], []
    notes: list[str] = []
    rules: list[Rule] = []
    if path in facts.importable:  # or no module in it would be found
        rules.append(Rule(path, Access.LIST))
        notes.append(f"modules are imported from {path}: job code sees the names of what is hidden below it")
    for entry in inside:
        if entry not in facts.hidden:
            told, permitted = _around(entry, access, facts, entries)
            notes += told
            rules += permitted
    return notes, rules


def _outermost(paths: tuple[str, ...]) -> Iterator[str]:
    """Yield the paths that lie below no other, each once."""
    unique = list(dict.fromkeys(paths))
    return (path for path in unique if not any(_below(path, other) for other in unique))


def _below(path: str, folder: str) -> bool:
    """Whether ``path`` lies below ``folder``; it does not lie below itself."""
    return path != folder and path.startswith(folder.rstrip("/") + "/")
