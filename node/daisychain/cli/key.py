"""`daisychain key ...`: the one secret that makes machines one chain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from daisychain.cli.console import errors_told, out, print_json
from daisychain.cli.options import Json, StateFolder

app = typer.Typer(no_args_is_help=True, help="Show, make, join or rotate the cluster key.")

KeyFile = Annotated[Path | None, typer.Option("--key-file", help="The cluster key's file")]

RESTART = "Agents that run keep the key they started with: restart them."


@app.command()
def show(state_folder: StateFolder = None, key_file: KeyFile = None, json: Json = False) -> None:
    """Print the cluster key and the line that joins another machine. Keep it secret."""
    with errors_told():
        from daisychain.net.identity.cluster_key import ClusterKey

        _tell(ClusterKey.load(_path(state_folder, key_file)), json)


@app.command()
def new(state_folder: StateFolder = None, key_file: KeyFile = None, json: Json = False) -> None:
    """Make a cluster key, when there is none yet."""
    with errors_told():
        from daisychain.errors import IdentityError
        from daisychain.net.identity.cluster_key import ClusterKey

        path = _path(state_folder, key_file)
        key, made = ClusterKey.load_or_create(path)
        if not made:
            raise IdentityError(
                f"there is a cluster key in {path} already (cluster {key.cluster_id})",
                "Use it, or replace it with `daisychain key rotate`",
            )
        _tell(key, json)


@app.command()
def join(
    key: Annotated[list[str], typer.Argument(help="The key as another node printed it")],
    state_folder: StateFolder = None,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Take another node's key: this machine joins its chain."""
    with errors_told():
        from daisychain.net.identity.cluster_key import ClusterKey

        parsed = ClusterKey.parse(" ".join(key))
        path = _path(state_folder, key_file)
        parsed.save(path)
        if json:
            print_json({"cluster_id": parsed.cluster_id})
        else:
            out().print(f"this machine belongs to cluster {parsed.cluster_id} now. {RESTART}", markup=False)


@app.command()
def rotate(state_folder: StateFolder = None, key_file: KeyFile = None, json: Json = False) -> None:
    """Replace the key by a new one: who holds only the old one stays out."""
    with errors_told():
        from daisychain.net.identity.cluster_key import rotate as rotate_key

        rotation = rotate_key(_path(state_folder, key_file))
        _tell(rotation.key, json)
        if not json:
            out().print(f"cluster {rotation.left_cluster_id} is left behind. {RESTART}", markup=False)


def _path(state_folder: Path | None, key_file: Path | None) -> Path:
    from daisychain.config import load_config
    from daisychain.host.storage import make_folder

    config = load_config({"state_folder": state_folder, "key_file": key_file})
    make_folder(config.state_folder)
    return config.key_path


def _tell(key: object, json: bool) -> None:
    from daisychain.install.invitation import in_our_image, invitation
    from daisychain.net.identity.cluster_key import ClusterKey

    assert isinstance(key, ClusterKey)  # noqa: S101 - keeps the import late
    if json:
        print_json({"key": key.text, "cluster_id": key.cluster_id})
        return
    console = out()
    console.print(f"cluster {key.cluster_id}", markup=False)
    for line in invitation(key.text, container=in_our_image()):
        console.print(line, markup=False)
