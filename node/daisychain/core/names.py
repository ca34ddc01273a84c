"""Which relative names the files of a bundle may have: those that mean one file on every machine.

A name is checked as text before any disk sees it. What Linux holds and Windows, macOS or another Unicode
would hold as another file, or as none, is refused on the node where it was dropped, not on the tenth.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from daisychain.errors import BundleError

DEPTH_MAX = 16
"""Most parts of a name: a deeper tree is made to wear out whoever walks it."""

PART_MAX_BYTES = 255
"""Longest part of a name in UTF-8: what every file system in use takes."""

NAME_MAX_BYTES = 512
"""Longest name in UTF-8: with the jobs folder's own path it stays within every platform's bound (1024)."""

NAMES_MAX_BYTES = 4 << 20
"""All names of a bundle together: bounds a manifest, and the time of checking it (some 0.2 s)."""

RESULT_FOLDER = "result"
LEFT_OUT = "__pycache__"
"""What a run itself writes, the first at the top only: no part of a job."""

COPYING_SUFFIX = ".part"
"""A folder ``NAME.part`` is still being copied in: no job until it is renamed."""

SHOWN_MAX = 80
"""Most characters of a name in a message."""

_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f\\:*?"<>|]')
_DEVICES = frozenset(
    ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"]
    + [f"{device}{number}" for device in ("COM", "LPT") for number in "0123456789¹²³"]
)
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Unicode's default ignorables, which some disks pass over when they compare names."""
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_NO_CHARACTERS = frozenset({"Cc", "Cs", "Cn", "Co", "Zl", "Zp"})

_RENAME = "Rename it"


def check_names(names: Sequence[str], entries_max: int) -> None:
    """Raise `BundleError` for the first name that may not be part of a bundle, with the rule and what to do.

    Beyond each name by itself: two that are one file where case or Unicode's form does not count, a file
    that is another's folder, more than ``entries_max`` files and folders, more text than NAMES_MAX_BYTES.
    """
    _check_count(len(names), entries_max)
    total = 0
    for name in names:
        total += _length(name)
        if total > NAMES_MAX_BYTES:
            raise BundleError(
                shown(name),
                f"with it the names take more than {NAMES_MAX_BYTES} bytes",
                "Pack many small files into one",
            )
    odd = {character for character in set().union(*names) if _is_odd(character)}
    for name in names:
        rule = _why_not(name, odd)
        if rule:
            raise BundleError(shown(name), rule, _RENAME)
    _check_count(len(names) + _check_together(names), entries_max)


def check_job_name(name: str) -> None:
    """Raise `BundleError` unless a job's folder may have this name on every machine."""
    _length(name)
    odd = {character for character in set(name) if _is_odd(character)}
    rule = "a job's name has no '/'" if "/" in name else _why_not_part(name) or _why_not_text(name, odd)
    if not rule and is_copying(name):
        rule = f"a folder whose name ends in {COPYING_SUFFIX} is still being copied in, and no job yet"
    if rule:
        raise BundleError(shown(name), rule, "Rename the folder")


def is_copying(name: str) -> bool:
    """Whether a folder of this name in the jobs folder is still being copied in."""
    return name.lower().endswith(COPYING_SUFFIX)


def shown(name: str) -> str:
    """Return the name as a message may show it: printable, on one line, bounded."""
    text = name if name.isprintable() else ascii(name)[1:-1]
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"


def folded(name: str) -> str:
    """Return what ``name`` is where neither case, nor Unicode's form, nor what is invisible counts.

    Canonical caseless matching, which macOS uses; Windows and Linux's casefold tell more names apart.
    """
    if name.isascii():
        return name.lower()
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFD", name.upper()).casefold())
    return _INVISIBLE.sub("", text)


def _length(name: str) -> int:
    """Return the name's bytes in UTF-8; raises `BundleError` when it is too long or no UTF-8."""
    if len(name) > NAME_MAX_BYTES:  # before anything that takes time for each character
        raise BundleError(shown(name), f"a name may have {NAME_MAX_BYTES} bytes", "Shorten it")
    try:
        size_bytes = len(name.encode())
    except UnicodeEncodeError:
        raise BundleError(shown(name), "the name is not UTF-8", _RENAME) from None
    if size_bytes > NAME_MAX_BYTES:
        raise BundleError(
            shown(name),
            f"its name has {size_bytes} bytes, and a name may have {NAME_MAX_BYTES}",
            "Shorten it",
        )
    return size_bytes


def _is_odd(character: str) -> bool:
    """Whether the character is none that a name may have on every machine, beyond what Windows forbids.

    Private ones are how Windows' shares tell of forbidden ones; unassigned ones may come to be equal to
    others; those that turn the direction of writing make a name read as another.
    """
    return unicodedata.category(character) in _NO_CHARACTERS or character in _TURNING


def _why_not(name: str, odd: set[str]) -> str:
    """Return the rule that ``name`` breaks by itself; empty when it breaks none."""
    rule = _why_not_text(name, odd)
    if rule:
        return rule
    parts = name.split("/")
    if len(parts) > DEPTH_MAX:
        return f"it lies {len(parts)} deep, and a file may lie {DEPTH_MAX} deep"
    if folded(parts[0]) == RESULT_FOLDER:
        return f"{RESULT_FOLDER}/ is where a run puts its result"
    return next(filter(None, map(_why_not_part, parts)), "")


def _why_not_text(name: str, odd: set[str]) -> str:
    """Return the rule that the characters of ``name`` break; empty when they break none."""
    if found := _FORBIDDEN.search(name):
        return f"a name may not have the character {found.group()!a}: Windows forbids it"
    if odd and not odd.isdisjoint(name):
        character = next(character for character in name if character in odd)
        return f"a name may not have the character {character!a}: machines differ in what it means"
    if not unicodedata.is_normalized("NFC", name):
        return "its name is in Unicode's decomposed form (NFD), and jobs travel in the composed one (NFC)"
    return ""


def _why_not_part(part: str) -> str:
    """Return the rule that one part of a name breaks; empty when it breaks none."""
    if part in ("", ".", ".."):
        return "a name leads from the folder down, part by part: no '..', no '.', nothing empty, no '/' ahead"
    if part[0] == ".":
        return f"{shown(part)} begins with a dot, and hidden files are no part of a job"
    if part[-1] in ". ":
        return "Windows drops a dot or a space at the end of a name"
    if folded(part) == LEFT_OUT:
        return f"{LEFT_OUT} is what Python writes, and no part of a job"
    if part.partition(".")[0].rstrip(" ").upper() in _DEVICES:
        return f"Windows takes {shown(part)} for a device"
    if len(part.encode()) > PART_MAX_BYTES:
        return f"a part of its name has over {PART_MAX_BYTES} bytes"
    return ""


def _check_count(entries: int, entries_max: int) -> None:
    """Raise `BundleError` when there are too many: each folder takes a block of the disk, however empty."""
    if entries > entries_max:
        raise BundleError(
            "the bundle",
            f"it holds more than {entries_max} files and folders",
            "Pack many small files into one",
        )


def _check_together(names: Iterable[str]) -> int:
    """Return how many folders the names make.

    Raises `BundleError` where two names are one on some machine, or a file is another's folder.
    """
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    known: set[str] = set()
    for name in names:
        _take(files, name)
        folder = name.rpartition("/")[0]
        while folder and folder not in known:
            known.add(folder)
            _take(folders, folder)
            folder = folder.rpartition("/")[0]
    for path, folder in folders.items():
        if path in files:
            raise BundleError(
                shown(files[path]), f"it is a file, and {shown(folder)}/ a folder of the same name", _RENAME
            )
    return len(folders)


def _take(taken: dict[str, str], name: str) -> None:
    other = taken.setdefault(folded(name), name)
    if other != name:
        raise BundleError(
            shown(name),
            f"it and {shown(other)} are one name where case, or the form of Unicode, does not count",
            "Rename one of the two",
        )
