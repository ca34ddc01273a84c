"""`daisychain install-plan`: what scripts/install.sh and install.ps1 ask the image to decide and write."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from daisychain.cli.console import errors_told, out

if TYPE_CHECKING:
    from rich.console import Console

    from daisychain.install.choice import Choice
    from daisychain.install.facts import Facts

Chosen = TypeVar("Chosen", bound=StrEnum)

IMAGE_USER = 10001
"""Whom the node runs as where the jobs folder's owner is root."""


def install_plan(
    key: Annotated[str | None, typer.Option(help="Another node's key: join its chain")] = None,
    network: Annotated[
        str | None, typer.Option(help="lan, tailnet or host-tailnet [default: chosen]")
    ] = None,
    variant: Annotated[str | None, typer.Option(help="cpu or cuda [default: chosen]")] = None,
    name: Annotated[str | None, typer.Option(help="This node's name [default: the host's]")] = None,
    new_chain: Annotated[bool, typer.Option("--new-chain", help="Make a key though a chain is here")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing (the installers ask for the key)")] = False,
    folder: Annotated[Path, typer.Option(help="The folder of compose.yaml, where .env is written")] = Path(
        "/install"
    ),
    interface: Annotated[
        str | None, typer.Option(help="Where a chain is looked for [default: chosen]")
    ] = None,
) -> None:
    """Read an installer's facts from standard input, choose, and write .env and the cluster key."""
    del yes
    with errors_told():
        import sys

        from daisychain.host.storage import read_bounded, write_atomically
        from daisychain.install import env_file
        from daisychain.install.choice import Way, Wishes, choose
        from daisychain.install.facts import FACTS_BYTES_MAX, read_facts
        from daisychain.install.variant import Variant

        facts = read_facts(sys.stdin.buffer.read(FACTS_BYTES_MAX).decode("utf-8", "replace"))
        path = folder / env_file.ENV_FILE
        text = (read_bounded(path, env_file.ENV_BYTES_MAX) or b"").decode("utf-8", "replace")
        before = env_file.read_env(text)
        wishes = Wishes(_one_of(Way, "network", network), _one_of(Variant, "variant", variant), name)
        choice = choose(facts, wishes, before)
        console = out()
        for reason in choice.reasons:
            console.print(reason, markup=False)
        look = _Look(facts, interface, skip=new_chain)
        made = _settle_key(folder, choice, key, look, console)
        merged = env_file.merge(text, env_file.variables(choice, before))
        if merged != text:
            write_atomically(path, merged.encode(), mode=0o644)
        told = "written" if merged != text else "as it was"
        console.print(f".env: {told} (node {choice.name}, {choice.way}, {choice.variant})", markup=False)
        _tell_next(choice, facts, made, console)


class _Look:
    """Where a chain is looked for before a key is made, and whether that is possible."""

    def __init__(self, facts: Facts, interface: str | None, skip: bool) -> None:
        self.facts = facts
        self.interface = interface
        self.skip = skip

    def refuse_second_chain(self, choice: Choice, console: Console) -> None:
        """Raise `IdentityError` when a chain announces itself here; tell when that cannot be seen."""
        import asyncio

        from daisychain.errors import IdentityError
        from daisychain.install.choice import Way
        from daisychain.install.nearby import foreign_chain, look_around

        if self.skip:
            return
        if choice.way is not Way.LAN:
            console.print(
                "key: a chain cannot be looked for on a tailnet; to join one, give --key", markup=False
            )
            return
        seen = asyncio.run(look_around(self.interface))
        if isinstance(seen, str):
            console.print(
                f"key: no chain could be looked for ({seen}); to join one, give --key", markup=False
            )
        elif seen:
            raise IdentityError(
                foreign_chain(seen),
                "To join it, run `docker compose exec node daisychain key show` on one of its nodes and here "
                f"{_again(self.facts)} --key KEY with what that prints. A chain of its own: --new-chain",
            )


def _settle_key(folder: Path, choice: Choice, given: str | None, look: _Look, console: Console) -> str:
    """Make the key file what it should be; return the key's text when it was made just now."""
    from daisychain.errors import StorageError
    from daisychain.install.env_file import KEY_FILE
    from daisychain.install.facts import System
    from daisychain.net.identity.cluster_key import ClusterKey

    path = folder / KEY_FILE
    try:
        there = path.exists()
    except OSError as error:
        raise StorageError(
            f"{path} is closed to the owner of jobs/: {error.strerror}",
            f"Give secrets/ and jobs/ one owner: sudo chown -R {choice.uid or IMAGE_USER} secrets jobs",
        ) from error
    if given is None and there:
        console.print(f"key: as before (cluster {ClusterKey.load(path).cluster_id})", markup=False)
        return ""
    if given is None:
        look.refuse_second_chain(choice, console)
        key, made = ClusterKey.load_or_create(path)
        console.print(f"key: made, this is the first node of cluster {key.cluster_id}", markup=False)
    else:
        key, made = ClusterKey.parse(given), False
        if not there or ClusterKey.load(path) != key:
            key.save(path)
        console.print(f"key: as given, this machine belongs to cluster {key.cluster_id}", markup=False)
    if look.facts.system is not System.WINDOWS:  # whose disks know no owners
        _hand_over(path, choice)
    return key.text if made else ""


def _hand_over(path: Path, choice: Choice) -> None:
    """Give the key to the user that the node runs as: a file that others can read is refused there."""
    import os

    from daisychain.errors import StorageError

    if os.name != "posix" or os.geteuid() != 0:
        return
    owner = IMAGE_USER if choice.uid is None else choice.uid
    try:
        os.chown(path, owner, owner if choice.gid is None else choice.gid)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be given to the node's user {owner}: {error.strerror}", f"chown {owner} {path}"
        ) from error


def _tell_next(choice: Choice, facts: Facts, made: str, console: Console) -> None:
    from daisychain.install.choice import Way
    from daisychain.install.invitation import invitation

    console.print("next: docker compose up --detach && docker compose logs --follow node", markup=False)
    if choice.way is Way.TAILNET:
        console.print(
            "  a new machine of a tailnet logs in once: open the address that "
            "`docker compose logs tailscale` prints (or put TS_AUTHKEY=... into .env before)",
            markup=False,
        )
    if made:
        for line in invitation(made, container=True):
            console.print(line, markup=False)


def _again(facts: Facts) -> str:
    from daisychain.install.facts import System

    return "scripts\\install.ps1" if facts.system is System.WINDOWS else "scripts/install.sh"


def _one_of(kind: type[Chosen], flag: str, value: str | None) -> Chosen | None:
    """Return the flag's value as a member of an enumeration; raises `ConfigError`."""
    from daisychain.errors import ConfigError

    if value is None:
        return None
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(kind)
        raise ConfigError(f"--{flag}: {value[:60]!r} does not fit", f"Expected one of {known}") from None
