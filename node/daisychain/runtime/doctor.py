"""`daisychain doctor`: finds the facts that a node depends on by trying each, and judges them.

Every check is bounded in time, runs beside the others, and one that fails is a line of the report.
"""

from __future__ import annotations

import asyncio
import datetime
import errno
import json
import os
import platform
import shutil
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from daisychain.errors import DaisyChainError, IdentityError, NetworkError
from daisychain.host.gpu import GpuList, choose_device, list_gpus
from daisychain.host.hardware import hardware
from daisychain.host.versions import torch_version
from daisychain.net.discovery.command import CommandBounds, run_command
from daisychain.net.discovery.mdns_check import check_mdns
from daisychain.net.discovery.tailnet import read_tailnet
from daisychain.net.discovery.tailnet_status import TailnetStatus, whom_to_dial
from daisychain.net.identity.cluster_key import ClusterKey
from daisychain.net.interface_choice import InterfaceChoice, Network, choose_interface
from daisychain.net.interfaces import Interface, default_route_address, list_interfaces
from daisychain.runtime import doctor_rules as rules
from daisychain.runtime.doctor_rules import Check, CheckState, TorchFacts
from daisychain.runtime.firewall import Openings, parse_port_range, peer_hosts
from daisychain.trainer.sandbox.landlock import landlock_abi

CHECK_TIMEOUT_S = 30.0
"""Most seconds for one check: whatever hangs (a dead network drive) becomes a line of the report."""

TORCH_TIMEOUT_S = 120.0
"""Most seconds for importing torch: 3 s on a laptop, a minute from the disk of an old machine."""

FILES_LOOKED_AT_MAX = 256
"""Most files whose times are compared with the clock."""

NO_INTERFACE_REMEDY = "See the line on the interface"

HOSTS_FILE = Path("/etc/hosts")
PORT_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
HOSTS_BYTES_MAX = 1 << 20

TORCH_PROBE = """
import json, torch, torch.distributed as dist
print(json.dumps({"version": torch.__version__, "arch_list": torch.cuda.get_arch_list(),
                  "gloo": dist.is_available() and dist.is_gloo_available()}))
"""


@dataclass(frozen=True, slots=True)
class DoctorRequest:
    """What the node is configured to use, as `NodeConfig` says.

    Attributes:
        agent_running: this node's agent answers, so that the control port is rightly held.
        peers: the hosts of the peers that this node's agent knows; empty when it does not run.
        python, nvidia_smi, tailscale: the programs that are asked.
    """

    state_folder: Path
    jobs_folder: Path
    key_path: Path
    control_port: int
    interface: str | None = None
    network: Network = Network.AUTO
    mdns: bool = True
    tailnet: bool = True
    agent_running: bool = False
    peers: tuple[str, ...] = ()
    tailscale: tuple[str, ...] = ("tailscale",)
    nvidia_smi: tuple[str, ...] = ("nvidia-smi",)
    python: str = sys.executable


async def run_checks(request: DoctorRequest, done: Callable[[Check], None] | None = None) -> list[Check]:
    """Return the report, in a fixed order; never raises.

    ``done`` is called with each check as it ends, for a progress display.
    """
    interfaces = list_interfaces()
    tailnet, trouble = await _read_tailnet(request)
    addresses = tailnet.addresses if tailnet else ()
    choice: InterfaceChoice | None = None
    try:
        route = default_route_address()
        choice = choose_interface(interfaces, request.interface, request.network, route, addresses)
        interface_check = rules.judge_interface(choice)
    except NetworkError as error:
        interface_check = Check("interface", CheckState.PROBLEM, error.message, error.remedy)
    found = await asyncio.to_thread(list_gpus, request.nvidia_smi)
    checks: list[tuple[str, Callable[[], Awaitable[Check]], float]] = [
        ("platform", _plain(lambda: _platform(choice)), CHECK_TIMEOUT_S),
        ("interface", _plain(lambda: interface_check), CHECK_TIMEOUT_S),
        ("hosts", _plain(_hosts), CHECK_TIMEOUT_S),
        ("tailnet", _plain(lambda: _tailnet(tailnet, trouble, request, interfaces)), CHECK_TIMEOUT_S),
        ("mdns", lambda: _mdns(request, choice), CHECK_TIMEOUT_S),
        ("port", _in_thread(lambda: _port(request, choice)), CHECK_TIMEOUT_S),
        ("firewall", _in_thread(lambda: _firewall(request, choice)), CHECK_TIMEOUT_S),
        ("clock", _in_thread(lambda: _clock(request)), CHECK_TIMEOUT_S),
        ("memory", _in_thread(_memory), CHECK_TIMEOUT_S),
        ("disk", _in_thread(lambda: _disk(request)), CHECK_TIMEOUT_S),
        ("gpu", _plain(lambda: _gpu(found)), CHECK_TIMEOUT_S),
        ("torch", lambda: _torch(request, found), TORCH_TIMEOUT_S),
        ("key", _in_thread(lambda: _key(request.key_path)), CHECK_TIMEOUT_S),
        ("sandbox", _in_thread(_sandbox), CHECK_TIMEOUT_S),
        ("jobs", _in_thread(lambda: _jobs(request.jobs_folder)), CHECK_TIMEOUT_S),
    ]
    return list(await asyncio.gather(*(_guarded(name, work, limit, done) for name, work, limit in checks)))


async def _guarded(
    name: str,
    work: Callable[[], Awaitable[Check]],
    timeout_s: float,
    done: Callable[[Check], None] | None,
) -> Check:
    """Run one check within its time; whatever it raises is its result."""
    try:
        async with asyncio.timeout(timeout_s):
            check = await work()
    except TimeoutError:
        text = f"the check did not end within {timeout_s:g} s"
        check = Check(name, CheckState.PROBLEM, text, "Look for a hanging disk, network drive or program")
    except DaisyChainError as error:
        check = Check(name, CheckState.PROBLEM, error.message, error.remedy)
    except Exception as error:
        text = f"the check itself failed: {type(error).__name__}: {error}"
        check = Check(name, CheckState.PROBLEM, text, "This is a fault of DaisyChain: please report it")
    if done is not None:
        done(check)
    return check


def _platform(choice: InterfaceChoice | None) -> Check:
    on_tailnet = choice is not None and choice.kind is Network.TAILNET
    return rules.judge_platform(sys.platform, platform.release(), on_tailnet)


def _plain(judge: Callable[[], Check]) -> Callable[[], Awaitable[Check]]:
    async def work() -> Check:
        return judge()

    return work


def _in_thread(look: Callable[[], Check]) -> Callable[[], Awaitable[Check]]:
    return lambda: asyncio.to_thread(look)


async def _read_tailnet(request: DoctorRequest) -> tuple[TailnetStatus | None, NetworkError | None]:
    if not request.tailnet:
        return None, NetworkError("switched off")
    try:
        return await read_tailnet(request.tailscale), None
    except NetworkError as error:
        return None, error


def _tailnet(
    status: TailnetStatus | None,
    trouble: NetworkError | None,
    request: DoctorRequest,
    interfaces: tuple[Interface, ...],
) -> Check:
    if status is None:
        message, remedy = (trouble.message, trouble.remedy) if trouble else ("", "")
        return rules.judge_no_tailnet(message, remedy, request.network)
    held = {address.host for interface in interfaces for address in interface.addresses}
    has_interface = not held.isdisjoint(status.addresses)
    return rules.judge_tailnet(status, whom_to_dial(status), request.network, has_interface)


async def _mdns(request: DoctorRequest, choice: InterfaceChoice | None) -> Check:
    if not request.mdns:
        return Check("mdns", CheckState.OK, "switched off")
    if choice is None:
        return Check("mdns", CheckState.PROBLEM, "not tried: there is no interface", NO_INTERFACE_REMEDY)
    if choice.kind is Network.TAILNET:
        return Check("mdns", CheckState.OK, "not used: a tailnet carries no multicast")
    try:
        return rules.judge_mdns(await check_mdns(choice), choice)
    except NetworkError as error:
        return Check("mdns", CheckState.WARNING, error.message, error.remedy)


def _port(request: DoctorRequest, choice: InterfaceChoice | None) -> Check:
    if choice is None:
        return Check("port", CheckState.PROBLEM, "not tried: there is no interface", NO_INTERFACE_REMEDY)
    host, port = choice.address, request.control_port
    if port == 0:
        return Check("port", CheckState.OK, "any free one will be taken")
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # only a listener is in the way
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return rules.judge_port(host, port, _holder(port), request.agent_running)
            text = f"{host}:{port} cannot be used: {error.strerror}"
            return Check("port", CheckState.PROBLEM, text, "Choose another port, from 1024 on")
    return rules.judge_port(host, port, None, request.agent_running)


def _firewall(request: DoctorRequest, choice: InterfaceChoice | None) -> Check:
    if choice is None:
        return Check("firewall", CheckState.PROBLEM, "not tried: there is no interface", NO_INTERFACE_REMEDY)
    if request.control_port == 0:
        return Check("firewall", CheckState.OK, "no lines for a control port that is different each time")
    try:
        told = PORT_RANGE_FILE.read_text(encoding="ascii", errors="replace")
    except OSError:  # macOS has none; its firewall asks by program
        told = ""
    openings = Openings(request.control_port, *parse_port_range(told))
    return rules.judge_firewall(choice, peer_hosts(request.peers, choice.address), openings)


def _holder(port: int) -> str:
    """Return who listens on a port, as far as this user may know."""
    try:
        for connection in psutil.net_connections("tcp4"):
            ours = getattr(connection.laddr, "port", None) == port
            if ours and connection.status == psutil.CONN_LISTEN and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except (psutil.Error, OSError):
        pass
    return "another program"


def _clock(request: DoctorRequest) -> Check:
    """Compare the clock with the times of the files in the state and jobs folders, and of our own code."""
    newest: float | None = None
    looked_at = 0
    for folder in (request.state_folder, request.jobs_folder, Path(__file__).parent):
        try:
            entries = [folder, *folder.iterdir()]
        except OSError:
            continue
        for entry in entries:
            looked_at += 1
            if looked_at > FILES_LOOKED_AT_MAX:
                break
            try:
                newest = max(newest or 0.0, entry.stat().st_mtime)
            except OSError:
                continue
    zone = datetime.UTC
    file_time = datetime.datetime.fromtimestamp(newest, zone) if newest is not None else None
    return rules.judge_clock(datetime.datetime.now(zone), file_time)


def _memory() -> Check:
    facts = hardware()
    return rules.judge_memory(facts, min(psutil.virtual_memory().available, facts.memory_bytes))


def _disk(request: DoctorRequest) -> Check:
    folder = request.state_folder
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return rules.judge_disk(str(request.state_folder), shutil.disk_usage(folder).free)


def _gpu(found: GpuList) -> Check:
    return rules.judge_gpu(found, choose_device(found, torch_version(), sys.platform), sys.platform)


async def _torch(request: DoctorRequest, found: GpuList) -> Check:
    """Import torch in a process of its own: the agent and the CLI stay without it."""
    bounds = CommandBounds(TORCH_TIMEOUT_S - 5.0, 1 << 20)
    result = await run_command((request.python, "-c", TORCH_PROBE), bounds)
    if result.code != 0:
        said = result.complaint.strip().splitlines()
        reason = f"importing torch ended with exit code {result.code}"
        return rules.judge_no_torch(f"{reason} : {said[-1][:200]}" if said else reason)
    told = json.loads(result.output.strip().splitlines()[-1])
    facts = TorchFacts(str(told["version"]), tuple(map(str, told["arch_list"])), bool(told["gloo"]))
    return rules.judge_torch(facts, found, sys.platform)


def _key(path: Path) -> Check:
    if not path.exists():
        return rules.judge_key(str(path), False, None)
    mode = path.stat().st_mode & 0o777 if os.name == "posix" else None
    try:
        ClusterKey.load(path)
    except IdentityError as error:
        return Check("key", CheckState.PROBLEM, error.message, error.remedy)
    return rules.judge_key(str(path), True, mode)


def _jobs(path: Path) -> Check:
    readable, writable = os.access(path, os.R_OK | os.X_OK), os.access(path, os.W_OK)
    return rules.judge_jobs(str(path), path.is_dir(), readable, writable)


def _sandbox() -> Check:
    user = os.getuid() if hasattr(os, "getuid") else -1
    reachable = tuple(path for path in rules.way_out_sockets(user) if os.access(path, os.W_OK))
    return rules.judge_sandbox(landlock_abi(), reachable)


def _hosts() -> Check:
    try:
        with HOSTS_FILE.open("r", encoding="utf-8", errors="replace") as file:
            text = file.read(HOSTS_BYTES_MAX)
    except OSError:
        text = ""
    return rules.judge_hosts(text, socket.gethostname())
