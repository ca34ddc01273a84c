"""Network namespaces that a test makes, and code that runs inside them.

Their names carry the mark of the process that made them, so that those of a killed run can be removed.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

import psutil

from support.owners import is_orphan, mark
from support.waiting import until

T = TypeVar("T")
CLONE_NEWNET = 0x40000000
HANDLES = Path("/run/netns")
PREFIX = "dct."
_numbers = itertools.count()


class NoNamespacesError(Exception):
    """This user, or this machine, can make no network namespaces; says why."""


def ip(arguments: str) -> None:
    """Run ``ip`` with these arguments; its complaint fails the test."""
    subprocess.run(["ip", *arguments.split()], check=True, capture_output=True, text=True, timeout=20)


@contextmanager
def namespaces(count: int) -> Iterator[list[str]]:
    """Give fresh namespaces with their loopback up; skip the test where this user may not make any."""
    names: list[str] = []
    try:
        try:
            for _ in range(count):
                names.append(make_namespace())
        except NoNamespacesError as error:
            import pytest

            pytest.skip(str(error))
        yield names
    finally:
        for name in names:
            ip(f"netns del {name}")


def make_namespace(label: str = "n") -> str:
    """Make a namespace with its loopback up; return its name. Raises `NoNamespacesError`."""
    if os.geteuid() != 0:
        raise NoNamespacesError("network namespaces need root")
    name = f"{PREFIX}{mark()}.{next(_numbers)}.{label}"
    try:
        ip(f"netns add {name}")
    except FileNotFoundError:
        raise NoNamespacesError("network namespaces need the program `ip` (iproute2)") from None
    except subprocess.CalledProcessError as error:
        raise NoNamespacesError(f"no network namespaces here: {error.stderr.strip()}") from None
    ip(f"-n {name} link set lo up")
    return name


def remove_namespace(name: str) -> None:
    """End whatever still runs inside, and remove the namespace with every interface in it."""
    for pid in pids_in(name):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    ip(f"netns del {name}")


def pids_in(namespace: str) -> list[int]:
    """Return the processes that live in a namespace."""
    told = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=True)
    return [int(pid) for pid in told.stdout.split()]


def remove_orphans() -> list[str]:
    """Remove the namespaces of test runs that are gone without having done so; return their names."""
    orphans = [entry.name for entry in HANDLES.glob(f"{PREFIX}*") if is_orphan(entry.name.split(".")[1])]
    for name in orphans:
        with contextlib.suppress(subprocess.CalledProcessError):  # another run is just removing it, too
            remove_namespace(name)
    return orphans


def cable(first: tuple[str, str, str], second: tuple[str, str, str]) -> None:
    """Join two namespaces: each end is (namespace, interface, address/prefix; empty for none)."""
    plug(first, second)
    for namespace, interface, _ in (first, second):
        await_carrier(namespace, interface)


def plug(first: tuple[str, str, str], second: tuple[str, str, str]) -> None:
    """Join two namespaces as `cable` does, without waiting until the kernel has told the carrier."""
    ip(f"link add {first[1]} netns {first[0]} type veth peer name {second[1]} netns {second[0]}")
    for namespace, interface, address in (first, second):
        if address:
            ip(f"-n {namespace} addr add {address} dev {interface}")
        ip(f"-n {namespace} link set {interface} up")


def await_carrier(namespace: str, interface: str) -> None:
    """Wait until the interface is told to be up."""
    until(partial(_is_up, namespace, interface), 10, f"{interface} has no carrier")


def _is_up(namespace: str, interface: str) -> bool:
    """The kernel tells a new carrier up to a second late."""
    told = subprocess.run(
        ["ip", "-n", namespace, "-br", "link", "show", interface], capture_output=True, text=True, check=True
    )
    return told.stdout.split()[1] == "UP"


def sysctl(namespace: str, name: str, value: int) -> None:
    """Set one of the kernel's network settings in a namespace; ``name`` is its path below net/."""
    inside(namespace, lambda: Path("/proc/sys/net", name).write_text(str(value)))


def enter_with_this_thread(namespace: str) -> None:
    """Have the calling thread live in ``namespace`` from now on, with the sockets that it opens."""
    libc = ctypes.CDLL(None, use_errno=True)
    with (HANDLES / namespace).open("rb") as handle:
        if libc.setns(handle.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")


def inside(namespace: str, work: Callable[[], T]) -> T:
    """Return what ``work`` returns when run in a thread that lives in ``namespace``.

    Only that thread enters it, with the sockets it opens and the processes and threads it starts.
    """
    results: list[T] = []
    faults: list[BaseException] = []

    def enter() -> None:
        try:
            enter_with_this_thread(namespace)
            # psutil lists interfaces from /proc/net, which shows the namespace of the process's first thread
            with patch.object(psutil, "PROCFS_PATH", "/proc/thread-self"):
                results.append(work())
        except BaseException as fault:
            faults.append(fault)

    thread = threading.Thread(target=enter, name=f"in {namespace}", daemon=True)
    thread.start()
    thread.join(timeout=90)
    if faults:
        raise faults[0]
    if not results:
        raise AssertionError(f"work in the namespace {namespace} did not end within 90 s")
    return results[0]
