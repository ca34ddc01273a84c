"""The rig's network does what it says: every shape and cut is seen in real traffic."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rig import requirements
from rig.cpu import cpu_groups
from rig.lan import Lan, lan
from rig.requirements import RigUnavailable
from rig.shape import Shape
from rig.traffic import arrivals, multicast_reaches, passes, rate_mbit, round_trip_s, tcp, udp
from support.cgroups import PERIOD_US
from support.namespaces import HANDLES
from support.owners import mark
from support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.rig]

TOLERANCE = 0.15
LATE_S = 0.015
"""How much later than on a real wire a frame may be on a busy machine."""

ABANDONED = """
import subprocess, sys, time
from rig.cpu import cpu_groups
from rig.lan import lan
from rig.shape import Shape
with lan(["eve", "fay"], Shape(delay_s=0.01)) as net, cpu_groups({"eve": 0.5}) as groups:
    inside = subprocess.Popen(groups["eve"].starting(net.place("eve").starting(["sleep", "1000"])))
    print(inside.pid, groups["eve"].folder, *(place.namespace for place in net.places), flush=True)
    time.sleep(1000)
"""


@pytest.fixture
def trio() -> Iterator[Lan]:
    with lan(["ada", "bob", "cem"]) as net:
        yield net


def reach(net: Lan) -> set[str]:
    """Return who reaches whom, as ``ada>bob``."""
    return {
        f"{source.name}>{target.name}"
        for source in net.places
        for target in net.places
        if source is not target and passes(source, target)
    }


def all_reach_all(net: Lan) -> None:
    """Wait until they do: who was not reached for a while is asked for its address again once a second."""
    pairs = len(net.places) * (len(net.places) - 1)
    until(lambda: len(reach(net)) == pairs, 10.0, "somebody does not reach somebody")


EVERYBODY = {"ada>bob", "ada>cem", "bob>ada", "bob>cem", "cem>ada", "cem>bob"}


def test_every_machine_has_its_name_its_address_and_reaches_the_others(trio: Lan) -> None:
    for place in trio.places:
        told = subprocess.run(
            place.starting(["cat", "/proc/sys/kernel/hostname"]), capture_output=True, text=True, check=True
        )
        assert told.stdout.strip() == place.name
    assert socket.gethostname() not in {place.name for place in trio.places}
    assert [place.address for place in trio.places] == ["10.77.0.1", "10.77.0.2", "10.77.0.3"]
    assert reach(trio) == EVERYBODY
    assert multicast_reaches(trio.place("ada"), trio.place("cem"))


def test_signals_reach_the_command_itself(trio: Lan) -> None:
    started = subprocess.Popen(trio.place("ada").starting(["sleep", "1000"]))
    try:
        until(lambda: psutil.Process(started.pid).name() == "sleep", 5.0, "the command does not take over")
        os.kill(started.pid, signal.SIGSTOP)
        until(lambda: psutil.Process(started.pid).status() == psutil.STATUS_STOPPED, 5.0, "it is not stopped")
        os.kill(started.pid, signal.SIGCONT)
    finally:
        started.terminate()
        assert started.wait(5.0) == -signal.SIGTERM


@pytest.mark.parametrize("shape", [Shape(rate_mbit=10), Shape(rate_mbit=10, delay_s=0.005)])
def test_a_rate_is_kept_both_ways_with_and_without_the_relay(trio: Lan, shape: Shape) -> None:
    ada, bob = trio.place("ada"), trio.place("bob")
    trio.shape("ada", shape)
    assert rate_mbit(ada, bob, 2.0, flood_mbit=20) == pytest.approx(10, rel=TOLERANCE)
    assert rate_mbit(bob, ada, 2.0, flood_mbit=20) == pytest.approx(10, rel=TOLERANCE)
    trio.shape("ada", Shape())
    assert rate_mbit(ada, bob, 1.0, flood_mbit=40) == pytest.approx(40, rel=TOLERANCE)


def test_a_saturated_link_delays_everything_by_its_queue_and_no_more(trio: Lan) -> None:
    shape = Shape(rate_mbit=10)
    trio.shape("ada", shape)
    ada, bob = trio.place("ada"), trio.place("bob")
    whole_s = shape.queue_bytes * 8 / 10e6
    with udp(ada) as near, udp(bob) as far, contextlib.suppress(BlockingIOError):
        near.setblocking(False)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        for _ in range(600):  # twice what the queue holds
            near.sendto(bytes(1400), far.getsockname())
        assert round_trip_s(ada, bob, 1) == pytest.approx(whole_s, rel=0.2)
    assert round_trip_s(ada, bob) < LATE_S


def test_delay_and_jitter_are_on_the_link_of_the_machine_that_has_them(trio: Lan) -> None:
    ada, bob, cem = trio.places
    trio.shape("ada", Shape(delay_s=0.02))
    assert 0.04 <= round_trip_s(ada, bob) < 0.04 + LATE_S
    assert round_trip_s(bob, cem) < LATE_S
    trio.shape("bob", Shape(delay_s=0.03))
    assert 0.10 <= round_trip_s(ada, bob) < 0.10 + LATE_S
    trio.shape("bob", Shape())
    trio.shape("ada", Shape(delay_s=0.03, jitter_s=0.02))
    came = arrivals(ada, cem, 300, pause_s=0.005)
    assert [number for number, _ in came] == list(range(300))
    took = sorted(seconds for _, seconds in came)
    assert took[0] >= 0.01
    assert 0.025 < statistics.median(took) < 0.05 + LATE_S
    assert took[-10] - took[10] > 0.015
    trio.shape("ada", Shape())
    assert round_trip_s(ada, bob) < LATE_S


@pytest.mark.parametrize(("source", "target"), [("ada", "bob"), ("bob", "ada")])
def test_as_much_is_lost_as_was_asked_for_either_way(trio: Lan, source: str, target: str) -> None:
    trio.shape("ada", Shape(loss=0.1))
    came = arrivals(trio.place(source), trio.place(target), 2000)
    assert 2000 - len(came) == pytest.approx(200, abs=60)  # 4.5 standard deviations
    assert [number for number, _ in came] == sorted(number for number, _ in came)


def test_tcp_gets_through_loss_and_delay(trio: Lan) -> None:
    trio.shape("ada", Shape(delay_s=0.005, loss=0.02))
    with tcp(trio.place("ada"), trio.place("bob")) as (near, far):
        near.sendall(bytes(60_000))
        near.shutdown(socket.SHUT_WR)
        far.settimeout(20.0)
        received = 0
        while data := far.recv(65536):
            received += len(data)
    assert received == 60_000


@pytest.mark.parametrize("shape", [Shape(), Shape(rate_mbit=50, delay_s=0.002)])
def test_a_cut_cable_resets_nobody_and_traffic_goes_on_when_it_is_healed(trio: Lan, shape: Shape) -> None:
    trio.shape("ada", shape)
    with tcp(trio.place("ada"), trio.place("bob")) as (near, far):
        near.sendall(b"before")
        assert far.recv(16) == b"before"
        trio.cut("ada")
        near.sendall(b"during")
        far.sendall(b"back")
        stays_quiet(1.0, far, near)
        assert reach(trio) == {"bob>cem", "cem>bob"}
        trio.heal("ada")
        far.settimeout(10.0)
        near.settimeout(10.0)
        assert far.recv(16) == b"during"
        assert near.recv(16) == b"back"
    all_reach_all(trio)


def stays_quiet(seconds: float, *ends: socket.socket) -> None:
    """Assert that nothing can be read of the ends, be it data, a close or an error, for so many seconds."""
    assert select.select(ends, [], [], seconds)[0] == []


def test_a_one_way_cut_is_one_way_for_connections_and_multicast(trio: Lan) -> None:
    ada, bob, cem = trio.places
    with tcp(ada, bob) as (near, far):
        trio.cut_one_way("ada", "bob")
        assert reach(trio) == EVERYBODY - {"ada>bob"}
        assert not multicast_reaches(ada, bob)
        assert multicast_reaches(bob, ada) and multicast_reaches(ada, cem)
        near.sendall(b"lost on the way")
        far.sendall(b"arrives")
        near.settimeout(5.0)
        assert near.recv(16) == b"arrives"
        stays_quiet(0.5, far)
        trio.heal_pair("ada", "bob")
        far.settimeout(10.0)
        assert far.recv(32) == b"lost on the way"
    all_reach_all(trio)


def test_a_pair_without_a_route_still_reaches_all_others(trio: Lan) -> None:
    trio.cut_pair("ada", "bob")
    trio.cut_pair("bob", "ada")  # said twice is no matter
    assert reach(trio) == EVERYBODY - {"ada>bob", "bob>ada"}
    trio.cut("cem")
    trio.mend()
    all_reach_all(trio)


def test_two_halves_hear_nothing_of_each_other_until_they_are_mended() -> None:
    with lan(["ada", "bob", "cem", "dan"]) as net:
        with tcp(net.place("ada"), net.place("cem")) as (near, far):
            net.partition(["ada", "bob"])
            near.sendall(b"later")
            assert reach(net) == {"ada>bob", "bob>ada", "cem>dan", "dan>cem"}
            assert not multicast_reaches(net.place("ada"), net.place("dan"))
            stays_quiet(0.1, far, near)
            net.mend()
            far.settimeout(10.0)
            assert far.recv(16) == b"later"
        all_reach_all(net)
        net.silence("dan")
        assert not any("dan" in pair for pair in reach(net))


def test_a_quota_acts_at_once_when_it_is_changed() -> None:
    with cpu_groups({"ada": 0.2}) as groups:
        burning = subprocess.Popen(groups["ada"].starting([sys.executable, "-c", "while True: pass"]))
        try:
            until(lambda: burning.pid in groups["ada"].pids(), 5.0, "it is not in its group")
            slow = used_cpus(burning.pid)
            groups["ada"].allow(0.6)
            fast = used_cpus(burning.pid)
        finally:
            burning.kill()
            burning.wait()
    assert slow < 0.2 * (1 + TOLERANCE)
    assert fast < 0.6 * (1 + TOLERANCE)
    assert fast > 2 * slow


def used_cpus(pid: int) -> float:
    """Return how many CPUs a process uses, over a hundred periods of its quota."""
    seconds = 300 * PERIOD_US / 1e6
    before_s, began_at = sum(psutil.Process(pid).cpu_times()[:2]), time.monotonic()
    time.sleep(seconds)  # what is measured is what happens in that time
    return (sum(psutil.Process(pid).cpu_times()[:2]) - before_s) / (time.monotonic() - began_at)


def test_nothing_is_left_behind_when_the_block_ends_in_an_error() -> None:
    with pytest.raises(ZeroDivisionError), lan(["ada", "bob"], Shape(delay_s=0.01)) as net:
        left = subprocess.Popen(net.place("ada").starting(["sleep", "1000"]))
        until(lambda: psutil.Process(left.pid).name() == "sleep", 5.0, "it does not start")
        _ = 1 / 0
    assert left.wait(5.0) == -signal.SIGKILL
    assert not [entry.name for entry in HANDLES.glob(f"*{mark()}*")]


def test_what_a_killed_run_left_behind_goes_at_the_next_start() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-c", ABANDONED]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        pid, group, *namespaces = run.stdout.readline().split()
        run.kill()
    assert psutil.pid_exists(int(pid))
    assert Path(group).exists() and all((HANDLES / name).exists() for name in namespaces)
    with lan(["ada"]):
        until(lambda: not psutil.pid_exists(int(pid)), 5.0, "the abandoned process lives")
        assert not any((HANDLES / name).exists() for name in namespaces)
        assert not Path(group).exists()


def test_where_it_cannot_run_it_says_why_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RigUnavailable, match=r"the program `ip` \(Debian's package iproute2\)"), lan(["ada"]):
        pass
    monkeypatch.undo()
    monkeypatch.setattr(requirements, "TUN", Path("/nowhere/tun"))
    no_tun = pytest.raises(RigUnavailable, match="delay and loss need /nowhere/tun")
    with no_tun, lan(["ada"], Shape(loss=0.5)):
        pass


@pytest.mark.parametrize(
    "wrong", [{"rate_mbit": 0}, {"delay_s": -1}, {"delay_s": 0.01, "jitter_s": 0.02}, {"loss": 1.0}]
)
def test_a_shape_that_no_link_has_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"a (rate|delay|loss)"):
        Shape(**wrong)  # type: ignore[arg-type]
