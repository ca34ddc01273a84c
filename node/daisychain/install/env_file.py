"""The file ``.env`` beside compose.yaml: what it says, and what it says after an installation. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from daisychain.install.choice import Choice, Way
from daisychain.install.variant import Variant

ENV_FILE = ".env"
ENV_BYTES_MAX = 1 << 16
KEY_FILE = "secrets/cluster.key"

HEADER = "# Written by scripts/install, which keeps what you add. compose/README.md tells the variables.\n"


def read_env(text: str) -> dict[str, str]:
    """Return the variables of a ``.env``; comments and lines of another shape are passed over."""
    found = {}
    for line in text.splitlines():
        key, separator, value = line.strip().partition("=")
        if separator and key and not key.startswith("#"):
            value = value.strip()
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
            found[key.strip()] = value[1:-1] if quoted else value
    return found


def variables(choice: Choice, before: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables that an installation sets; None = must not be there.

    Pieces of COMPOSE_FILE that the user added (an override of their own) stay, after ours.
    """
    pieces = ["compose.yaml"]
    match choice.way:
        case Way.LAN:
            pass
        case Way.TAILNET:
            pieces.append("compose/tailnet.yaml")
        case Way.HOST_TAILNET:
            pieces.append("compose/host-tailnet.yaml")
    if choice.variant is Variant.CUDA:
        pieces.append("compose/cuda.yaml")
    pieces.append("compose/key.yaml")
    ours = {
        "",
        "compose.yaml",
        *(f"compose/{name}.yaml" for name in ("lan", "tailnet", "host-tailnet", "cuda", "key")),
    }
    pieces += [piece for piece in before.get("COMPOSE_FILE", "").split(":") if piece not in ours]
    return {
        "COMPOSE_PATH_SEPARATOR": ":",  # Windows parts them by ; otherwise
        "COMPOSE_FILE": ":".join(pieces),
        "DAISYCHAIN_NAME": choice.name,
        "DAISYCHAIN_NETWORK": "lan" if choice.way is Way.LAN else "tailnet",
        "DAISYCHAIN_VARIANT": choice.variant.value,
        "DAISYCHAIN_CUDA": choice.cuda.value if choice.cuda else None,
        "DAISYCHAIN_KEY": f"./{KEY_FILE}",
        "DAISYCHAIN_UID": before.get("DAISYCHAIN_UID", _text(choice.uid)),
        "DAISYCHAIN_GID": before.get("DAISYCHAIN_GID", _text(choice.gid)),
    }


def merge(text: str, wanted: Mapping[str, str | None]) -> str:
    """Return ``text`` with the variables as ``wanted``; every other line stays as it is, in its place."""
    left = dict(wanted)
    lines = []
    for line in text.splitlines():
        key = line.strip().partition("=")[0].strip()
        if key not in wanted or line.lstrip().startswith("#"):
            lines.append(line)
        elif key in left:
            value = left.pop(key)
            same = value is not None and read_env(line).get(key) == value
            lines += [line if same else _line(key, value)] if value is not None else []
    lines += [_line(key, value) for key, value in left.items() if value is not None]
    merged = "".join(f"{line}\n" for line in lines)
    return merged if text.strip() else HEADER + merged


def _line(key: str, value: str) -> str:
    return f"{key}='{value}'" if " " in value else f"{key}={value}"


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)
