"""Network namespaces that a test makes, and code that runs inside them."""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

import psutil
import pytest

from support.waiting import until

T = TypeVar("T")
CLONE_NEWNET = 0x40000000
_numbers = itertools.count()


def ip(arguments: str) -> None:
    """Run ``ip`` with these arguments; its complaint fails the test."""
    subprocess.run(["ip", *arguments.split()], check=True, capture_output=True, text=True, timeout=20)


@contextmanager
def namespaces(count: int) -> Iterator[list[str]]:
    """Give fresh namespaces with their loopback up; skip the test where this user may not make any."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    names: list[str] = []
    try:
        for _ in range(count):
            name = f"dct{os.getpid()}n{next(_numbers)}"
            try:
                ip(f"netns add {name}")
            except (OSError, subprocess.CalledProcessError) as error:
                pytest.skip(f"no network namespaces here: {error}")
            names.append(name)
            ip(f"-n {name} link set lo up")
        yield names
    finally:
        for name in names:
            ip(f"netns del {name}")


def cable(first: tuple[str, str, str], second: tuple[str, str, str]) -> None:
    """Join two namespaces: each end is (namespace, interface, address/prefix; empty for none)."""
    ip(f"link add {first[1]} netns {first[0]} type veth peer name {second[1]} netns {second[0]}")
    for namespace, interface, address in (first, second):
        if address:
            ip(f"-n {namespace} addr add {address} dev {interface}")
        ip(f"-n {namespace} link set {interface} up")
    for namespace, interface, _ in (first, second):
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


def inside(namespace: str, work: Callable[[], T]) -> T:
    """Return what ``work`` returns when run in a thread that lives in ``namespace``.

    Only that thread enters it, with the sockets it opens and the processes and threads it starts.
    """
    results: list[T] = []
    faults: list[BaseException] = []

    def enter() -> None:
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            with Path(f"/run/netns/{namespace}").open("rb") as handle:
                if libc.setns(handle.fileno(), CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
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
