"""What holds for every test: nothing that a test started may outlive it."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import settings

from rig.requirements import RigUnavailable
from support.waiting import until

LEAK_DEADLINE_S = 5.0

TOGETHER = {"integration/agents": "agents", "integration/cli": "agents", "integration/trainer": "trainers"}
"""Tests that start several processes and see how soon one follows another: one of a group runs at a time."""

# How long an example takes says how busy the machine is; pytest-timeout bounds the whole test.
settings.register_profile("daisychain", deadline=None)
settings.load_profile("daisychain")


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the marks in its own hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep what belongs together in one process, where the tests run in two (pytest-xdist)."""
    for item in items:
        folder = item.path.parent.relative_to(Path(__file__).parent).as_posix()
        if folder in TOGETHER:
            item.add_marker(pytest.mark.xdist_group(TOGETHER[folder]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None]:
    """Skip what needs the rig where it cannot run."""
    yield from _skipping()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """Likewise."""
    yield from _skipping()


def _skipping() -> Generator[None]:
    try:
        yield
    except RigUnavailable as reason:
        pytest.skip(str(reason))


def _open_files() -> set[str]:
    """Return what this process holds open: sockets and pipes by their inode, files by their path."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        if target.startswith(("socket:", "pipe:")) or Path(target).is_file():
            found.add(target)
    return found


def _children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.fixture(autouse=True)
def leaves_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a process, a thread or an open file behind."""
    threads, files, children = set(threading.enumerate()), _open_files(), _children()
    yield
    until(lambda: _children() <= children, LEAK_DEADLINE_S, "child processes left behind")
    until(lambda: set(threading.enumerate()) <= threads, LEAK_DEADLINE_S, "threads left behind")
    until(lambda: _open_files() <= files, LEAK_DEADLINE_S, "sockets or files left open")
