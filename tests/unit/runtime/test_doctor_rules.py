"""What the doctor says of each trap."""

from __future__ import annotations

import datetime
import json

import msgspec
import pytest

from daisychain.core.ids import Address, ClusterId, NodeId
from daisychain.host.gpu import DeviceChoice, Gpu, GpuList, choose_device
from daisychain.host.hardware import judge_hardware
from daisychain.host.limits import Limits
from daisychain.net.discovery.mdns_check import MdnsFinding
from daisychain.net.discovery.mdns_record import Neighbour
from daisychain.net.discovery.tailnet_status import parse_status, whom_to_dial
from daisychain.net.interface_choice import Network, choose_interface
from daisychain.net.interfaces import Interface, InterfaceAddress
from daisychain.runtime import doctor_rules as rules
from daisychain.runtime.doctor_rules import Check, CheckState, TorchFacts
from support.tailscale_json import peer, status

OK, WARNING, PROBLEM = CheckState.OK, CheckState.WARNING, CheckState.PROBLEM
GIB = 1024**3
ETH = Interface("eth0", (InterfaceAddress("192.168.1.5", 24),))
DOCKER = Interface("docker0", (InterfaceAddress("172.17.0.1", 16),))
NOW = datetime.datetime(2026, 11, 30, tzinfo=datetime.UTC)


def test_native_windows_is_a_problem_with_the_way_out() -> None:
    check = rules.judge_platform("win32")
    assert check.state is PROBLEM and "Docker Desktop" in check.remedy
    assert rules.judge_platform("linux").state is OK


@pytest.mark.parametrize("kernel", ["5.15.153.1-microsoft-standard-WSL2", "6.10.14-linuxkit"])
def test_a_virtual_machine_behind_its_host_is_told_unless_the_tailnet_leads_into_it(kernel: str) -> None:
    check = rules.judge_platform("linux", kernel)
    assert check.state is WARNING and "--network tailnet" in check.remedy
    assert rules.judge_platform("linux", kernel, on_tailnet=True).state is OK
    assert rules.judge_platform("linux", "6.1.0-9-amd64").state is OK


def test_the_interface_line_tells_the_reason_and_the_rejected() -> None:
    text = rules.judge_interface(choose_interface((ETH, DOCKER))).text
    assert "eth0 192.168.1.5: wired" in text and "docker0 172.17.0.1 (Docker's bridge" in text


def test_how_far_job_code_is_confined_is_told() -> None:
    check = rules.judge_sandbox(0, ())
    assert check.state is WARNING and "job code is trusted with the key" in check.text and check.remedy
    assert rules.judge_sandbox(7, ()).state is OK
    assert rules.judge_sandbox(5, ()).state is WARNING and "signals" in rules.judge_sandbox(5, ()).text
    bus = rules.way_out_sockets(1000)[0]
    assert rules.judge_sandbox(7, (bus,)).state is WARNING and bus in rules.judge_sandbox(7, (bus,)).text
    assert rules.judge_sandbox(9, (bus,)).state is OK
    assert "/run/dbus/system_bus_socket" in rules.way_out_sockets(0)


def tailnet(network: Network, has_interface: bool, **changes: object) -> Check:
    found = parse_status(json.dumps(status(peer(2, Active=True, CurAddr="1.2.3.4:1"), **changes)))
    return rules.judge_tailnet(found, whom_to_dial(found), network, has_interface)


def test_a_userspace_tailnet_is_a_problem_where_it_is_the_network() -> None:
    assert tailnet(Network.TAILNET, True, TUN=False).state is PROBLEM
    assert "TS_USERSPACE=false" in tailnet(Network.AUTO, True, TUN=False).remedy
    assert tailnet(Network.AUTO, True, TUN=False).state is WARNING
    assert tailnet(Network.TAILNET, False).state is PROBLEM
    assert tailnet(Network.TAILNET, True).state is OK


def test_a_relayed_path_and_tailscales_own_complaints_are_warnings() -> None:
    assert tailnet(Network.TAILNET, True, Health=["no DNS"]).state is WARNING
    found = parse_status(json.dumps(status(peer(2, Active=True, CurAddr="", Relay="fra"))))
    check = rules.judge_tailnet(found, whom_to_dial(found), Network.TAILNET, True)
    assert check.state is WARNING and "DERP" in check.text


def test_a_missing_tailnet_matters_only_where_it_is_the_network() -> None:
    assert rules.judge_no_tailnet("stopped", "tailscale up", Network.TAILNET).state is PROBLEM
    assert rules.judge_no_tailnet("stopped", "tailscale up", Network.AUTO).state is OK


def test_hearing_only_ourselves_is_not_called_a_working_network() -> None:
    choice = choose_interface((ETH,))
    alone = rules.judge_mdns(MdnsFinding(0.02, ()), choice)
    assert "no multicast" in alone.text and "seeds" in alone.remedy
    found = Neighbour(NodeId("1" * 32), ClusterId("a" * 16), "0.1.0", (Address("192.168.1.6", 1),))
    assert (
        "1 nodes of the clusters aaaaaaaaaaaaaaaa"
        in rules.judge_mdns(MdnsFinding(0.02, (found,)), choice).text
    )


def test_a_dead_clock_is_a_warning_and_no_more() -> None:
    dead = rules.judge_clock(NOW.replace(year=1970), None)
    assert dead.state is WARNING and "connections do not depend on it" in dead.text
    assert rules.judge_clock(NOW, NOW + datetime.timedelta(days=30)).state is WARNING
    assert rules.judge_clock(NOW, NOW + datetime.timedelta(hours=14)).state is OK
    assert rules.judge_clock(NOW, None).state is OK


def test_a_held_port_is_a_problem_unless_our_agent_holds_it() -> None:
    assert rules.judge_port("10.0.0.1", 7447, None, False).state is OK
    assert rules.judge_port("10.0.0.1", 7447, "nginx (pid 7)", True).state is OK
    held = rules.judge_port("10.0.0.1", 7447, "nginx (pid 7)", False)
    assert held.state is PROBLEM and "nginx" in held.text


@pytest.mark.parametrize(
    ("usable", "available", "state"),
    [(16 * GIB, 8 * GIB, OK), (GIB, GIB, WARNING), (16 * GIB, GIB // 4, PROBLEM)],
)
def test_little_memory_is_told(usable: int, available: int, state: CheckState) -> None:
    facts = judge_hardware("linux", 2, 2, usable, Limits(None, None))
    assert rules.judge_memory(facts, available).state is state


def test_a_full_disk_is_told() -> None:
    assert rules.judge_disk("/state", 50 * GIB).state is OK
    assert rules.judge_disk("/state", GIB).state is WARNING
    assert rules.judge_disk("/state", 1000).state is PROBLEM


def test_a_gpu_that_lies_idle_is_a_warning_and_none_is_fine() -> None:
    none = GpuList((), "no NVIDIA driver is installed")
    assert rules.judge_gpu(none, DeviceChoice("cpu", ""), "linux").state is OK
    kepler = GpuList((Gpu("Tesla K80", 1, (470, 82), (3, 7)),), "")
    check = rules.judge_gpu(kepler, choose_device(kepler, "2.13.0+cu126", "linux"), "linux")
    assert check.state is WARNING and "older than 525.60" in check.text
    maxwell = GpuList((Gpu("GTX 970", 4 * GIB, (535, 1), (5, 2)),), "")
    cpu_build = rules.judge_gpu(maxwell, choose_device(maxwell, "2.13.0+cpu", "linux"), "linux")
    assert cpu_build.state is WARNING and "CUDA 12.6" in cpu_build.remedy
    assert rules.judge_gpu(maxwell, choose_device(maxwell, "2.13.0+cu126", "linux"), "linux").state is OK


def test_a_torch_without_code_for_the_gpu_or_without_gloo_is_told() -> None:
    maxwell = GpuList((Gpu("GTX 970", 4 * GIB, (535, 1), (5, 2)),), "")
    blackwell = GpuList((Gpu("RTX 5070", 4 * GIB, (570, 1), (12, 0)),), "")
    cu130, cu126 = ("sm_75", "sm_90", "sm_120"), ("sm_50", "sm_90")
    old = rules.judge_torch(TorchFacts("2.14.1+cu130", cu130, True), maxwell, "linux")
    assert old.state is WARNING and "GTX 970 (5.2)" in old.text and "12.6" in old.remedy
    new = rules.judge_torch(TorchFacts("2.14.1+cu126", cu126, True), blackwell, "linux")
    assert new.state is WARNING and "13.0" in new.remedy
    assert rules.judge_torch(TorchFacts("2.14.1+cu126", cu126, True), maxwell, "linux").state is OK
    assert rules.judge_torch(TorchFacts("2.13.0", (), False), maxwell, "linux").state is PROBLEM


def test_a_cpu_without_sse41_is_named() -> None:
    check = rules.judge_no_torch("importing torch ended with exit code -4")
    assert check.state is PROBLEM and "too old" in check.remedy
    assert "too old" not in rules.judge_no_torch("importing torch ended with exit code 1 : No module").remedy


def test_the_key_and_the_jobs_folder_are_judged() -> None:
    assert rules.judge_key("/k", False, None).state is WARNING
    assert rules.judge_key("/k", True, 0o640).remedy == "chmod 600 /k"
    assert rules.judge_key("/k", True, 0o600).state is OK
    assert rules.judge_jobs("/j", False, False, False).state is WARNING
    assert rules.judge_jobs("/j", True, False, True).state is PROBLEM
    assert rules.judge_jobs("/j", True, True, False).state is PROBLEM
    assert rules.judge_jobs("/j", True, True, True).state is OK


def test_debians_hosts_line_is_seen_and_does_not_matter() -> None:
    check = rules.judge_hosts("127.0.0.1 localhost\n127.0.1.1 oldbox.lan oldbox # mine\n", "oldbox")
    assert check.state is OK and "oldbox is 127.0.1.1" in check.text
    assert "is no loopback" in rules.judge_hosts("# 127.0.1.1 oldbox\n127.0.0.1 localhost\n", "oldbox").text


def test_a_check_is_json() -> None:
    told = json.loads(msgspec.json.encode(Check("port", OK, "free")))
    assert told == {"name": "port", "state": "ok", "text": "free", "remedy": ""}
