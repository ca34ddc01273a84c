"""model.safetensors: tensors, and one JSON card in its metadata that says what they are.

Never pickled: reading a model file runs no code. The card is one metadata entry, because
the order of several is not fixed and equal models must make equal files.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from daisychain.core.job_spec import JobSpec
from daisychain.errors import JobError, StorageError
from daisychain.trainer.jobs.table_encoding import Encoding

CARD_KEY = "daisychain"
CARD_VERSION = 1
_SHOWN = 3


class Network(msgspec.Struct, frozen=True):
    """The MLP of a table's model."""

    inputs: int
    hidden: tuple[int, ...]
    activation: str
    outputs: int


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """What a model file tells of itself.

    Attributes:
        job: the job's name.
        kind: ``table`` or ``python``.
        spec: the whole job.yaml, defaults included.
        torch: the version that trained it.
        network, encoding: for a table.
        version: of this card.
    """

    job: str
    kind: str
    spec: dict[str, Any]
    torch: str = str(torch.__version__)
    network: Network | None = None
    encoding: Encoding | None = None
    version: int = CARD_VERSION


class _Version(msgspec.Struct):
    version: int


def spec_as_dict(spec: JobSpec) -> dict[str, Any]:
    """Return ``spec`` as JSON-able values."""
    values: dict[str, Any] = msgspec.to_builtins(spec)
    return values


def save_model(model: nn.Module, card: ModelCard, path: Path) -> None:
    """Write ``model`` to ``path`` atomically; the tensors' names are those of ``model.state_dict()``.

    Tied weights are written under each of their names, so ``load_state_dict`` takes the file as it is.
    Raises `StorageError` when it cannot be written.
    """
    tensors = {
        name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in model.state_dict().items()
    }
    metadata = {CARD_KEY: msgspec.json.encode(card, order="deterministic").decode()}
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        save_file(tensors, temporary, metadata)
        temporary.chmod(0o644)
        temporary.replace(path)
    except (OSError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        raise StorageError(f"{path} cannot be written: {error}", "Make room on its disk.") from None


def read_model(path: Path, where: str) -> tuple[dict[str, torch.Tensor], ModelCard | None]:
    """Return a model file's tensors (in host memory) and its card, None for a file of another program.

    Raises `JobError` naming ``where`` when the file is none, or of a version that is not known.
    """
    if not path.is_file():
        raise JobError(where, "there is no such file", "Train the job first, or correct the path.")
    try:
        with safe_open(path, framework="pt") as opened:
            metadata = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - no mapping
    except (OSError, SafetensorError, ValueError) as error:
        raise JobError(where, f"not a safetensors file: {error}", "Train the job again.") from None
    text = metadata.get(CARD_KEY)
    if text is None:
        return tensors, None
    try:
        version = msgspec.json.decode(text, type=_Version).version
        if version != CARD_VERSION:
            raise JobError(
                where,
                f"its description has version {version}, this DaisyChain reads {CARD_VERSION}",
                "Use the DaisyChain version that wrote it.",
            )
        return tensors, msgspec.json.decode(text, type=ModelCard)
    except (msgspec.DecodeError, RecursionError) as error:
        raise JobError(where, f"its description is damaged: {error}", "Train the job again.") from None


def fill_model(model: nn.Module, tensors: dict[str, torch.Tensor], where: str) -> None:
    """Copy ``tensors`` into ``model``; raises `JobError` unless names and shapes are the model's own."""
    own = model.state_dict()
    wrong = [f"{name} is missing" for name in own.keys() - tensors.keys()]
    wrong += [f"{name} is not in the model" for name in tensors.keys() - own.keys()]
    wrong += [
        f"{name} is {_shape(tensors[name])} there and {_shape(own[name])} in the model"
        for name in own.keys() & tensors.keys()
        if own[name].shape != tensors[name].shape
    ]
    if wrong:
        wrong.sort()
        more = f", and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise JobError(
            where,
            "does not fit the model: " + "; ".join(wrong[:_SHOWN]) + more,
            "Use a result of the same model.",
        )
    model.load_state_dict(tensors)


def _shape(tensor: torch.Tensor) -> str:
    return "x".join(str(size) for size in tensor.shape) or "a scalar"
