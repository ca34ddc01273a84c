"""What `daisychain doctor` makes of the facts it finds: pure, one judgement a function."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from enum import StrEnum

from daisychain.host.gpu import DeviceChoice, GpuList, arch_runs, why_unusable
from daisychain.host.hardware import GIB, WINDOWS_REMEDY, Hardware, why_no_training
from daisychain.net.discovery.mdns_check import MdnsFinding
from daisychain.net.discovery.tailnet_status import DialPlan, TailnetStatus, slow_path
from daisychain.net.interface_choice import InterfaceChoice, Network
from daisychain.runtime.firewall import PLACEHOLDER, Openings, firewall_lines
from daisychain.trainer.sandbox.rights import RESOLVE_UNIX_SINCE, SCOPES_SINCE, missing

MIB = 1024**2
LEAST_MEMORY_BYTES = 512 * MIB
"""A trainer of the smallest job: torch alone takes 300 MB."""
GOOD_MEMORY_BYTES = 2 * GIB
LEAST_DISK_BYTES = 100 * MIB
GOOD_DISK_BYTES = 2 * GIB
VIRTUAL_KERNELS = {"microsoft": "WSL or Docker Desktop", "linuxkit": "Docker Desktop"}
"""What of a kernel's release tells a virtual machine behind its host's address: whose it is."""
SANE_YEARS = (2024, 2100)
CLOCK_SLACK_S = 86400.0
"""A file a day younger than now is a time zone mixed up; more is a wrong clock."""


class CheckState(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"  # the node works, with less than it could
    PROBLEM = "problem"  # something will not work


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report. ``remedy``: what to do; empty when there is nothing to do."""

    name: str
    state: CheckState
    text: str
    remedy: str = ""


def judge_platform(platform: str, kernel: str = "", on_tailnet: bool = False) -> Check:
    """Judge whether anything can be trained on this platform, with others.

    ``kernel``: its release, which names WSL and Docker Desktop; ``on_tailnet``: the chain runs over one.
    """
    refusal = why_no_training(platform)
    if refusal is not None:
        return Check("platform", CheckState.PROBLEM, refusal, WINDOWS_REMEDY)
    behind = next((name for mark, name in VIRTUAL_KERNELS.items() if mark in kernel.lower()), None)
    if behind is None or on_tailnet:
        return Check("platform", CheckState.OK, f"{platform}: gloo works here")
    text = f"{platform} in the virtual machine of {behind}: machines of the LAN reach no address in it"
    return Check(
        "platform", CheckState.WARNING, text, "Use the tailnet: scripts/install.sh --network tailnet"
    )


def judge_interface(choice: InterfaceChoice) -> Check:
    """Tell the interface chosen, why, and why not the others."""
    text = f"{choice.name} {choice.address}: {choice.reason}"
    if choice.rejected:
        rejected = (f"{r.name}{' ' + r.address if r.address else ''} ({r.why})" for r in choice.rejected)
        text += f". Not chosen: {'; '.join(rejected)}"
    return Check("interface", CheckState.OK, text)


def judge_tailnet(status: TailnetStatus, plan: DialPlan, network: Network, has_interface: bool) -> Check:
    """Judge a running tailnet; whether it matters depends on the network that was asked for."""
    needed = CheckState.PROBLEM if network is Network.TAILNET else CheckState.WARNING
    if status.userspace or not has_interface:
        return Check(
            "tailnet",
            needed,
            "Tailscale runs, but without an interface that training could use",
            "In a container set TS_USERSPACE=false and give it /dev/net/tun and NET_ADMIN; "
            "elsewhere start tailscaled without --tun=userspace-networking",
        )
    text = f"{status.name or 'up'}, as {status.own_name}: {len(plan.peers)} machines to dial ({plan.reason})"
    slow = [told for told in (slow_path(status.own_name, peer) for peer in plan.peers) if told]
    if slow or status.health:
        remedy = "Publish 41641/udp or open it in the router" if slow else "Look at `tailscale status`"
        return Check("tailnet", CheckState.WARNING, "; ".join([text, *slow, *status.health]), remedy)
    return Check("tailnet", CheckState.OK, text)


def judge_no_tailnet(reason: str, remedy: str, network: Network) -> Check:
    """Judge a tailnet that is not up: a problem only where it is the network."""
    if network is Network.TAILNET:
        return Check("tailnet", CheckState.PROBLEM, reason, remedy)
    return Check("tailnet", CheckState.OK, f"not used: {reason}")


def judge_mdns(finding: MdnsFinding, interface: InterfaceChoice) -> Check:
    """Tell what mDNS heard. Hearing ourselves proves this machine, not the network."""
    text = f"heard our own announcement on {interface.name} after {finding.echo_s * 1000:.0f} ms"
    if finding.neighbours:
        clusters = sorted({neighbour.cluster_id for neighbour in finding.neighbours})
        nodes = len(finding.neighbours)
        return Check(
            "mdns", CheckState.OK, f"{text}, and {nodes} nodes of the clusters {', '.join(clusters)}"
        )
    return Check(
        "mdns",
        CheckState.OK,
        f"{text}, and no node (none is running, or the network carries no multicast)",
        "If nodes are running nearby, use seeds or the tailnet: guest WiFi and Docker Desktop drop multicast",
    )


def judge_clock(now: datetime.datetime, newest_file: datetime.datetime | None) -> Check:
    """Judge the clock by its year and by the files that were written here."""
    note = "control connections do not depend on it"
    remedy = "Set the clock (timedatectl set-ntp true); an old machine may need a new CMOS battery"
    if not SANE_YEARS[0] <= now.year <= SANE_YEARS[1]:
        return Check("clock", CheckState.WARNING, f"it says {now:%Y-%m-%d}; {note}", remedy)
    if newest_file is not None and (newest_file - now).total_seconds() > CLOCK_SLACK_S:
        text = f"it says {now:%Y-%m-%d}, but a file here is from {newest_file:%Y-%m-%d}; {note}"
        return Check("clock", CheckState.WARNING, text, remedy)
    return Check("clock", CheckState.OK, f"{now:%Y-%m-%d %H:%M} UTC; {note}")


def judge_port(host: str, port: int, held_by: str | None, agent_running: bool) -> Check:
    """Judge the control port. ``held_by``: who listens there, None when it is free."""
    name = f"{host}:{port}"
    if held_by is None:
        return Check("port", CheckState.OK, f"{name} is free")
    if agent_running:
        return Check("port", CheckState.OK, f"{name} is held by this node's agent")
    return Check(
        "port", CheckState.PROBLEM, f"{name} is held by {held_by}", "Stop that program, or use another port"
    )


def judge_firewall(choice: InterfaceChoice, peers: tuple[str, ...], openings: Openings) -> Check:
    """Print what a firewall here must let in from these peers; whether there is one only root can see."""
    if choice.kind is Network.TAILNET:
        return Check("firewall", CheckState.OK, "Tailscale lets its own peers in")
    if choice.kind is Network.LOOPBACK:
        return Check("firewall", CheckState.OK, "none stands within one machine")
    whom = f"{len(peers)} peers known" if peers else f"no peer known yet: {PLACEHOLDER} is its address"
    text = (
        f"the control port {openings.control_port}, gloo's {openings.low}-{openings.high} and mDNS must "
        f"reach {choice.address} from every peer ({whom})"
    )
    lines = "\n".join(firewall_lines(peers, openings))
    return Check(
        "firewall", CheckState.OK, text, f"Only where a firewall runs, as root one of these:\n{lines}"
    )


def judge_memory(hardware: Hardware, available_bytes: int) -> Check:
    """Judge the memory that a trainer can have."""
    text = (
        f"{hardware.memory_bytes / GIB:.1f} GiB usable ({hardware.memory_reason}), "
        f"{available_bytes / GIB:.1f} GiB free now; {hardware.cores} cores ({hardware.cores_reason})"
    )
    least = min(hardware.memory_bytes, available_bytes)
    if least < LEAST_MEMORY_BYTES:
        return Check(
            "memory", CheckState.PROBLEM, text, "Close programs or raise the limit: torch needs 512 MiB"
        )
    if least < GOOD_MEMORY_BYTES:
        return Check("memory", CheckState.WARNING, text, "Only small models will fit")
    return Check("memory", CheckState.OK, text)


def way_out_sockets(user: int) -> tuple[str, ...]:
    """Return the sockets whose other end starts programs for ``user``, past any confinement of who asks."""
    for_all = (f"/run/user/{user}/bus", f"/run/user/{user}/systemd/private", "/run/docker.sock")
    return (*for_all, "/run/dbus/system_bus_socket") if user == 0 else for_all


def judge_sandbox(abi: int, reachable: tuple[str, ...]) -> Check:
    """Judge how far job code is confined; ``reachable``: sockets of `way_out_sockets` that are there."""
    if abi < 1:
        text = "job code is trusted with the key: there is no Landlock, or the container's engine refuses it"
        remedy = (
            "Linux has it from 5.13 on, where it is not switched off; Docker lets it pass from 23 on; "
            "until then run only jobs you trust"
        )
        return Check("sandbox", CheckState.WARNING, text, remedy)
    gaps = missing(abi)
    text = f"job code is confined to its run (Landlock {abi})"
    if gaps:
        text += f"; left open: {'; '.join(gaps)}"
    if reachable and abi < RESOLVE_UNIX_SINCE:
        text += f". Here such sockets are {', '.join(reachable)}"
        remedy = "Run the node in its container, or as a user of its own that has none of them"
        return Check("sandbox", CheckState.WARNING, text, remedy)
    if abi < SCOPES_SINCE:
        return Check("sandbox", CheckState.WARNING, text, "Use a newer kernel, or run only jobs you trust")
    return Check("sandbox", CheckState.OK, text)


def judge_disk(folder: str, free_bytes: int) -> Check:
    """Judge the room in the state folder, where runs are written."""
    text = f"{free_bytes / GIB:.1f} GiB free for {folder}"
    if free_bytes < LEAST_DISK_BYTES:
        return Check("disk", CheckState.PROBLEM, text, "Free some space: results could not be written")
    if free_bytes < GOOD_DISK_BYTES:
        return Check("disk", CheckState.WARNING, text, "Free some space before a large job")
    return Check("disk", CheckState.OK, text)


def judge_gpu(found: GpuList, device: DeviceChoice, platform: str) -> Check:
    """Judge the GPUs: one that is there and cannot be used is worth a warning."""
    if not found.gpus:
        return Check("gpu", CheckState.OK, f"none: {found.reason}; this node computes on its CPU")
    if device.device == "cpu":
        usable = any(why_unusable(gpu, platform) is None for gpu in found.gpus)
        remedy = (
            "Install the CUDA 12.6 build of torch" if usable else "Nothing: this node computes on its CPU"
        )
        return Check("gpu", CheckState.WARNING, device.reason, remedy)
    return Check("gpu", CheckState.OK, f"{device.device}: {device.reason}")


@dataclass(frozen=True, slots=True)
class TorchFacts:
    """What a short-lived process found out by importing torch."""

    version: str
    arch_list: tuple[str, ...]
    gloo: bool


def judge_torch(facts: TorchFacts, found: GpuList, platform: str) -> Check:
    """Judge the installed torch against the GPUs that it should run on."""
    archs = " ".join(facts.arch_list) or "CPU only"
    text = f"torch {facts.version} ({archs})"
    if not facts.gloo:
        return Check(
            "torch", CheckState.PROBLEM, f"{text} was built without gloo", "Install torch's official wheel"
        )
    for gpu in found.gpus:
        if why_unusable(gpu, platform) is not None or gpu.capability is None or not facts.arch_list:
            continue
        if not arch_runs(gpu.capability, facts.arch_list):
            wanted = "13.0" if gpu.capability >= (10, 0) else "12.6"
            capability = ".".join(map(str, gpu.capability))
            return Check(
                "torch",
                CheckState.WARNING,
                f"{text} has no code for {gpu.name} ({capability})",
                f"Install its CUDA {wanted} build; until then this node computes on its CPU",
            )
    return Check("torch", CheckState.OK, text)


def judge_no_torch(reason: str) -> Check:
    """Judge a torch that cannot be imported; ``reason`` says how it failed."""
    if "-4" in reason.split():  # SIGILL
        return Check(
            "torch",
            CheckState.PROBLEM,
            "importing torch ended with an illegal instruction",
            "This CPU is too old for it (SSE4.1 is the least); the machine cannot be a node",
        )
    return Check("torch", CheckState.PROBLEM, reason, "Install it, or use DaisyChain's image")


def judge_key(path: str, exists: bool, mode: int | None) -> Check:
    """Judge a sound key file, or none. ``mode``: its permission bits where the system has them."""
    if not exists:
        return Check(
            "key",
            CheckState.WARNING,
            f"there is none at {path}: the node would found a chain of its own",
            "To join a chain, run `daisychain key show` on one of its nodes and `daisychain key join` here",
        )
    if mode is not None and mode & 0o077:
        return Check(
            "key", CheckState.WARNING, f"others on this machine can read {path}", f"chmod 600 {path}"
        )
    return Check("key", CheckState.OK, f"there, at {path}")


def judge_jobs(path: str, exists: bool, readable: bool, writable: bool) -> Check:
    """Judge the jobs folder: jobs are read from it and results are written into it."""
    if not exists:
        return Check("jobs", CheckState.WARNING, f"{path} does not exist", f"mkdir -p {path}")
    if not readable:
        return Check("jobs", CheckState.PROBLEM, f"{path} cannot be read", f"Give this user access to {path}")
    if not writable:
        return Check(
            "jobs",
            CheckState.PROBLEM,
            f"{path} cannot be written, and results go there",
            f"Give this user write access to {path}; in a container check the volume's owner",
        )
    return Check("jobs", CheckState.OK, f"{path} can be read and written")


def judge_hosts(hosts_text: str, host_name: str) -> Check:
    """Tell whether the machine's own name means a loopback address, as Debian writes it."""
    for line in hosts_text.splitlines():
        words = line.partition("#")[0].split()
        if len(words) > 1 and words[0].startswith("127.") and host_name in words[1:]:
            return Check(
                "hosts",
                CheckState.OK,
                f"the hosts file says {host_name} is {words[0]}, where gloo would listen for nobody; "
                "DaisyChain gives it the address above instead",
            )
    return Check("hosts", CheckState.OK, "the machine's name is no loopback address in the hosts file")
