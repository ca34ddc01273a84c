"""`daisychain doctor`: what of this machine would keep it from training with others."""

from __future__ import annotations

from daisychain.cli.console import errors_told, out, print_json
from daisychain.cli.exits import Exit
from daisychain.cli.options import JobsFolder, Json, StateFolder


def doctor(state_folder: StateFolder = None, jobs_folder: JobsFolder = None, json: Json = False) -> None:
    """Check interface, tailnet, mDNS, clock, port, firewall, memory, disk, key, GPU and torch."""
    with errors_told():
        import asyncio

        import typer

        from daisychain.cli.client import AgentClient
        from daisychain.config import load_config
        from daisychain.errors import DaisyChainError
        from daisychain.runtime.doctor import DoctorRequest, run_checks
        from daisychain.runtime.doctor_rules import CheckState

        config = load_config({"state_folder": state_folder, "jobs_folder": jobs_folder})
        try:
            view = AgentClient(config.state_folder).status().view
            running, peers = True, tuple(peer.info.address.host for peer in view.peers)
        except DaisyChainError:
            running, peers = False, ()
        request = DoctorRequest(
            state_folder=config.state_folder,
            jobs_folder=config.jobs_folder,
            key_path=config.key_path,
            control_port=config.port,
            interface=config.interface,
            network=config.network,
            mdns=config.mdns,
            tailnet=config.tailnet,
            tailscale=config.discovery_settings().tailscale,
            agent_running=running,
            peers=peers,
        )
        if json:
            checks = asyncio.run(run_checks(request))
            print_json({"checks": checks})
        else:
            from daisychain.cli.render import show_check

            console = out()
            checks = asyncio.run(run_checks(request, lambda check: show_check(console, check)))
        if any(check.state is CheckState.PROBLEM for check in checks):
            raise typer.Exit(Exit.DOCTOR)
