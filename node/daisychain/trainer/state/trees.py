"""Training state to bytes and back: tensors and plain values only, bounded, never unpickled.

A tree is made of None, bool, int, float, str, lists, tuples, dictionaries with str or int keys, and
tensors. It becomes a JSON header and one flat buffer with the tensors' bytes one behind the other. Equal
trees give equal bytes: dictionaries travel in the order of their keys, floats as their shortest exact text.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from daisychain.errors import JobError, ProtocolError

HEADER_MAX_BYTES = 16 << 20
"""Largest header accepted: some 100,000 tensors; bounds what a donor can make a receiver parse."""

DEPTH_MAX = 24
"""Deepest nesting: a schedule inside a schedule needs six levels."""

_DTYPES: dict[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    )
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}

Tree = Any
"""See the module's docstring."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A tree as bytes.

    Attributes:
        header: JSON: the tensors' dtypes and shapes, then the tree with each tensor as its number.
        payload: uint8, host memory: the tensors' bytes.
    """

    header: bytes
    payload: torch.Tensor


def pack(tree: Tree) -> Packed:
    """Return ``tree`` as bytes, copied.

    Raises `JobError` for a value that cannot travel: it comes from the user's optimizer or schedule.
    """
    tensors: list[torch.Tensor] = []
    body = _encode(tree, tensors, "state")
    described = [[_NAMES[tensor.dtype], list(tensor.shape)] for tensor in tensors]
    header = json.dumps([described, body], separators=(",", ":")).encode()
    parts = [tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for tensor in tensors]
    return Packed(header, torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8))


def unpack(header: bytes, payload: torch.Tensor) -> Tree:
    """Return the tree, its tensors in host memory.

    Raises `ProtocolError` unless the header is well formed and describes exactly ``payload``.
    """
    if len(header) > HEADER_MAX_BYTES:
        raise ProtocolError(f"a state header of {len(header)} bytes is over the limit of {HEADER_MAX_BYTES}")
    try:
        described, body = json.loads(header)
        tensors = _cut(described, payload)
        return _decode(body, tensors, 0)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise ProtocolError(f"a state header that is none: {error}") from None


def _encode(value: Tree, tensors: list[torch.Tensor], where: str) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case torch.Tensor():
            if value.dtype not in _NAMES or value.layout is not torch.strided:
                raise JobError(where, f"a tensor of {value.dtype}, {value.layout} cannot be passed on")
            tensors.append(value)
            return {"x": len(tensors) - 1}
        case np.generic():
            return _encode(value.item(), tensors, where)
        case Mapping():
            if any(not isinstance(key, str | int) for key in value):
                raise JobError(where, "a dictionary with keys other than text and whole numbers")
            keys = sorted(value, key=lambda key: (isinstance(key, str), key))
            kind = "c" if isinstance(value, Counter) else "d"
            return {kind: [[key, _encode(value[key], tensors, f"{where}.{key}")] for key in keys]}
        case list() | tuple():
            items = [_encode(item, tensors, f"{where}[{index}]") for index, item in enumerate(value)]
            return {"t" if isinstance(value, tuple) else "l": items}
        case _:
            raise JobError(
                where,
                f"a {type(value).__name__} in the training state cannot be passed to another node",
                "Give the optimizer or schedule a state_dict() of numbers, texts, lists and tensors.",
            )


def _decode(value: Any, tensors: list[torch.Tensor], depth: int) -> Tree:
    if depth > DEPTH_MAX:
        raise ValueError("nested too deeply")
    if not isinstance(value, dict):
        if isinstance(value, list):
            raise ValueError("a bare list")
        return value
    ((kind, content),) = value.items()
    match kind:
        case "x":
            if isinstance(content, bool) or content < 0:
                raise ValueError("no tensor has that number")
            return tensors[content]
        case "l":
            return [_decode(item, tensors, depth + 1) for item in content]
        case "t":
            return tuple(_decode(item, tensors, depth + 1) for item in content)
        case "d" | "c":
            found = {key: _decode(item, tensors, depth + 1) for key, item in content}
            return Counter(found) if kind == "c" else found
        case _:
            raise ValueError(f"unknown kind {kind!r}")


def _cut(described: Any, payload: torch.Tensor) -> list[torch.Tensor]:
    """Return the tensors in ``payload``, each in memory of its own."""
    tensors: list[torch.Tensor] = []
    start = 0
    for name, shape in described:
        dtype = _DTYPES[name]
        if any(not isinstance(size, int) or isinstance(size, bool) or size < 0 for size in shape):
            raise ValueError("a tensor's shape that is none")
        stop = start + math.prod(shape) * dtype.itemsize
        if stop > payload.numel():
            raise ValueError("the tensors are larger than what came")
        tensors.append(payload[start:stop].clone().view(dtype).reshape(shape))
        start = stop
    if start != payload.numel():
        raise ValueError(f"{payload.numel() - start} bytes belong to no tensor")
    return tensors
