"""`daisychain node`: run this machine's agent until it is stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from daisychain.cli.console import errors_told, out
from daisychain.cli.options import CacheMaxBytes, JobsFolder, MemoryMaxBytes, StateFolder


def node(
    state_folder: StateFolder = None,
    jobs_folder: JobsFolder = None,
    name: Annotated[str | None, typer.Option(help="This node's name [default: the host's]")] = None,
    interface: Annotated[
        str | None, typer.Option(help="Network interface or IPv4 address [default: chosen, see doctor]")
    ] = None,
    network: Annotated[str | None, typer.Option(help="auto, lan, tailnet or loopback")] = None,
    port: Annotated[int | None, typer.Option(help="Control port; 0 = any free one [default: 7447]")] = None,
    seeds: Annotated[str | None, typer.Option(help="Where nodes may be: host[:port], ...")] = None,
    key_file: Annotated[Path | None, typer.Option(help="The cluster key's file")] = None,
    min_nodes: Annotated[int | None, typer.Option(help="The first world waits for so many nodes")] = None,
    checkpoint_every_s: Annotated[
        float | None, typer.Option(help="Seconds between two checkpoints of a small state [default: 30]")
    ] = None,
    cache_max_bytes: CacheMaxBytes = None,
    memory_max_bytes: MemoryMaxBytes = None,
    mdns: Annotated[bool | None, typer.Option("--mdns/--no-mdns", help="Look for nodes on the LAN")] = None,
    tailnet: Annotated[bool | None, typer.Option("--tailnet/--no-tailnet", help="Ask Tailscale")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error")] = None,
) -> None:
    """Run this machine's agent: it finds the chain, and trains the jobs dropped into the jobs folder."""
    flags = dict(locals())
    with errors_told():
        import asyncio

        from daisychain.app import Started, run_agent
        from daisychain.config import load_config
        from daisychain.install.invitation import in_our_image, invitation

        config = load_config(flags)
        console = out()

        def started(told: Started) -> None:
            console.print(f"{told.name} ({told.node_id[:8]}) listens on {told.address}")
            console.print(f"  over {told.interface.name}: {told.interface.reason}")
            console.print(f"  jobs: {config.jobs_folder}   state: {config.state_folder}")
            if told.new_key:
                console.print("  This first node made the cluster key.")
                for line in invitation(told.new_key, container=in_our_image()):
                    console.print(f"  {line}", markup=False)
            console.file.flush()

        reason = asyncio.run(run_agent(config, started))
        console.print(f"left: {reason}")
