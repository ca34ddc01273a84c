"""What is installed on a machine, and why: facts, wishes and what was chosen before -> choice. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from daisychain.errors import ConfigError
from daisychain.install.facts import Facts, System, Tailscale
from daisychain.install.variant import Cuda, Variant, card_for_cuda, choose_variant

LEAST_DOCKER = (20, 10)
LEAST_COMPOSE = (2, 20)
"""The compose files extend one another and wait for each other's health; older ones refuse them."""

NAME_MAX = 64


class Way(StrEnum):
    """How a node reaches the others."""

    LAN = "lan"  # the machine's own network
    TAILNET = "tailnet"  # a Tailscale in a container beside the node
    HOST_TAILNET = "host-tailnet"  # the machine's own Tailscale


@dataclass(frozen=True, slots=True)
class Wishes:
    """What was asked for; None = not asked."""

    way: Way | None = None
    variant: Variant | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """What is installed. ``reasons``: a line for each decision, for people."""

    way: Way
    variant: Variant
    cuda: Cuda | None
    name: str
    uid: int | None
    gid: int | None
    reasons: tuple[str, ...]


def choose(facts: Facts, wishes: Wishes, before: Mapping[str, str]) -> Choice:
    """Return the choice: a wish wins over what ``.env`` says (``before``), that over what the facts suggest.

    Raises `ConfigError` with the reason and a remedy when Docker does not suffice or a wish cannot work here.
    """
    check_engine(facts)
    way, way_reason = _settle_way(facts, wishes.way, before.get("COMPOSE_FILE"))
    variant, cuda, variant_reason = _settle_variant(facts, wishes.variant, before)
    name = wishes.name or before.get("DAISYCHAIN_NAME") or facts.host_name[:NAME_MAX] or "node"
    if not (name.isprintable() and len(name) <= NAME_MAX and not set(name) & set("'\"\\$#")):
        raise ConfigError(
            f"--name: {name[:NAME_MAX]!r} does not fit",
            f"Expected 1 to {NAME_MAX} printable characters, without quotes, \\, $ and #",
        )
    # root's jobs are shared by access lists with a user that is not root: see images/prepare-folders.sh
    owned = facts.uid is not None and facts.uid > 0 and facts.system is not System.WINDOWS
    return Choice(
        way,
        variant,
        cuda,
        name,
        facts.uid if owned else None,
        facts.gid if owned else None,
        (f"network {way}: {way_reason}", f"variant {variant}: {variant_reason}"),
    )


def check_engine(facts: Facts) -> None:
    """Raise `ConfigError` unless Docker and its compose are there and new enough."""
    for name, found, least, remedy in (
        (
            "Docker",
            facts.docker,
            LEAST_DOCKER,
            "Install it from https://docs.docker.com/get-docker/ and start it",
        ),
        (
            "Docker's compose plugin",
            facts.compose,
            LEAST_COMPOSE,
            "Install docker-compose-plugin (Debian: docker-compose), or Docker Desktop",
        ),
    ):
        if found is None:
            raise ConfigError(f"{name} is not there, or does not answer this user", remedy)
        if found < least:
            raise ConfigError(f"{name} {_dotted(found)} is older than {_dotted(least)}", remedy)


def suggest_way(facts: Facts) -> tuple[Way, str]:
    """Return the network that suits these facts, and why."""
    if facts.virtual:
        return Way.TAILNET, _why_virtual(facts)
    match facts.tailscale:
        case Tailscale.UP:
            return (
                Way.HOST_TAILNET,
                "this machine is on a tailnet already; where all nodes are Linux machines on one LAN, "
                "--network lan on each of them is faster",
            )
        case Tailscale.USERSPACE:
            return Way.LAN, "this machine's Tailscale has no interface that training could use"
        case Tailscale.DOWN:
            return Way.LAN, f"this machine's Tailscale is not up ({facts.tailscale_trouble})"
        case Tailscale.ABSENT:
            return Way.LAN, "nodes on one LAN find each other by themselves; this machine has no Tailscale"
        case other:
            assert_never(other)


def _settle_way(facts: Facts, wish: Way | None, composed: str | None) -> tuple[Way, str]:
    if wish is not None:
        _refuse_way(facts, wish)
        return wish, "as asked"
    suggested, why = suggest_way(facts)
    if composed is None:
        return suggested, why
    kept = way_of(composed)
    if kept is suggested:
        return kept, f"as before; {why}"
    return (
        kept,
        f"as before. A new installation would take {suggested} ({why}): --network {suggested} changes it",
    )


def way_of(composed: str) -> Way:
    """Return the network that a COMPOSE_FILE line stands for."""
    pieces = [piece.rpartition("/")[2] for piece in composed.replace(";", ":").replace("\\", "/").split(":")]
    if "host-tailnet.yaml" in pieces:
        return Way.HOST_TAILNET
    return Way.TAILNET if "tailnet.yaml" in pieces else Way.LAN


def _refuse_way(facts: Facts, wish: Way) -> None:
    if wish is Way.TAILNET:
        return
    if facts.virtual:
        raise ConfigError(
            f"--network {wish} cannot work here: {_why_virtual(facts)}", "Use --network tailnet"
        )
    if wish is Way.HOST_TAILNET and facts.tailscale is not Tailscale.UP:
        why = {
            Tailscale.ABSENT: "Tailscale is not installed",
            Tailscale.DOWN: f"Tailscale is not up ({facts.tailscale_trouble})",
            Tailscale.USERSPACE: "tailscaled runs in userspace mode, without an interface",
        }[facts.tailscale]
        raise ConfigError(
            f"--network host-tailnet cannot work here: {why}",
            "Run `tailscale up` first, or use --network tailnet, which brings its own",
        )


def _why_virtual(facts: Facts) -> str:
    where = "Docker Desktop" if facts.desktop else f"Docker on {facts.system}"
    return f"{where} keeps containers in a virtual machine, where no multicast and no peer of a LAN gets"


def _settle_variant(
    facts: Facts, wish: Variant | None, before: Mapping[str, str]
) -> tuple[Variant, Cuda | None, str]:
    kept = before.get("DAISYCHAIN_VARIANT")
    suggested = choose_variant(facts)
    if wish is Variant.CPU:
        return wish, None, "as asked"
    if wish is Variant.CUDA:
        card = card_for_cuda(facts)
        if isinstance(card, str):
            raise ConfigError(f"--variant cuda cannot work here: {card}", "Use --variant cpu")
        return wish, card.cuda, f"as asked; {card.reason}"
    if kept not in list(Variant) or kept == suggested.variant:
        again = "" if kept is None else "as before; "
        return suggested.variant, suggested.cuda, again + suggested.reason
    note = f"as before. A new installation would take {suggested.variant} ({suggested.reason})"
    cuda = before.get("DAISYCHAIN_CUDA", Cuda.CU126) if kept == Variant.CUDA else None
    return (
        Variant(kept),
        Cuda(cuda) if cuda in list(Cuda) else None,
        f"{note}: --variant {suggested.variant} changes it",
    )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
