"""YAML as job files need it: text, numbers, true/false, null, lists and mappings, and nothing else.

Stricter than YAML 1.1 where that surprises people: ``yes`` and ``on`` are text, ``1e-3`` is a number,
a key given twice is an error, and there are no anchors, aliases, tags, dates or base-60 numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

TEXT_MAX_CHARACTERS = 64 * 1024
"""Longest document: a job.yaml has some thirty lines; this stops a file put there by mistake."""

DEPTH_MAX = 8
"""Deepest nesting: job files need two levels; this stops a document made to exhaust the stack."""

_INTEGER = re.compile(r"[-+]?[0-9][0-9_]*")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INTEGER_DIGITS_MAX = 19
_WORDS: dict[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip

Plain = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]


class PlainYamlError(Exception):
    """The text is no such document; ``line`` counts from 1 (None when it is not known)."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


@dataclass(frozen=True, slots=True)
class Entry:
    """One top-level key's value, and the line (from 1) on which the key stands."""

    value: Plain
    line: int


class _Loader(yaml.BaseLoader):
    """Composes nodes without resolving them; refuses anchors and aliases at the first one."""

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]  # the stubs leave it out
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise PlainYamlError("anchors and aliases (& and *) are not allowed", event.start_mark.line + 1)
        return super().compose_node(parent, index)


def read_mapping(text: str) -> dict[str, Entry]:
    """Return the document's top-level keys; raises `PlainYamlError` for anything but one mapping."""
    if len(text) > TEXT_MAX_CHARACTERS:
        raise PlainYamlError(f"{len(text)} characters, more than the {TEXT_MAX_CHARACTERS} allowed")
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise PlainYamlError(f"not YAML: {error.problem or error.context}", line) from None
    except yaml.YAMLError as error:
        raise PlainYamlError(f"not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise PlainYamlError(f"nested deeper than {DEPTH_MAX} levels") from None
    except (ValueError, OverflowError):  # PyYAML's scanner, for an escape such as "\UFFFFFFFF"
        raise PlainYamlError("not YAML: an escape in a quoted text names no character") from None
    if root is None:
        raise PlainYamlError("the file is empty")
    if not isinstance(root, MappingNode):
        raise PlainYamlError("expected lines of the form 'key: value'", _line(root))
    return {key: Entry(_plain(value, 1), line) for key, (value, line) in _pairs(root).items()}


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


def _pairs(mapping: MappingNode) -> dict[str, tuple[Node, int]]:
    """Return the mapping's values and key lines by key; refuses keys that are no text or come twice."""
    if mapping.tag not in ("tag:yaml.org,2002:map", "!"):
        raise PlainYamlError(f"tags ({mapping.tag}) are not allowed", _line(mapping))
    pairs: dict[str, tuple[Node, int]] = {}
    for key, value in mapping.value:
        if not isinstance(key, ScalarNode):
            raise PlainYamlError("a key must be one word", _line(key))
        _refuse_surrogates(key)
        if key.value in pairs:
            raise PlainYamlError(f"the key {key.value!r} is given twice", _line(key))
        pairs[key.value] = (value, _line(key))
    return pairs


def _plain(node: Node, depth: int) -> Plain:
    """Return the Python value of ``node``."""
    if depth > DEPTH_MAX:
        raise PlainYamlError(f"nested deeper than {DEPTH_MAX} levels", _line(node))
    match node:
        case MappingNode():
            return {key: _plain(value, depth + 1) for key, (value, _) in _pairs(node).items()}
        case SequenceNode(tag="tag:yaml.org,2002:seq"):
            return [_plain(item, depth + 1) for item in node.value]
        case ScalarNode(tag="tag:yaml.org,2002:str"):
            _refuse_surrogates(node)
            return node.value if node.style is not None else _scalar(node.value)
        case _:
            raise PlainYamlError(f"tags ({node.tag}) are not allowed", _line(node))


def _refuse_surrogates(node: ScalarNode) -> None:
    """Refuse half characters (the escape "\\ud800"): such text cannot be written to a file or sent."""
    if any("\ud800" <= character <= "\udfff" for character in node.value):
        raise PlainYamlError("an escape in a quoted text names half a character", _line(node))


def _scalar(text: str) -> Plain:
    """Return what an unquoted scalar stands for."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        digits = text.replace("_", "")  # longer ones are no whole number that any key takes
        return int(digits) if len(digits) <= _INTEGER_DIGITS_MAX else float(digits)
    if _NUMBER.fullmatch(text) and len(text) <= 64:
        return float(text)
    return str(text)
