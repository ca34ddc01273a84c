"""A Ctrl-C, wherever it strikes, neither loses a process of the demo's nor its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from daisychain.cli.demo.chain import LocalNode
from daisychain.cli.demo.child import Child
from support.waiting import until

SLEEPER = (sys.executable, "-c", "import time; time.sleep(60)")
ENDS_S = 10.0
PLACES_MAX = 200


@pytest.fixture(autouse=True)
def _ctrl_c() -> Iterator[None]:
    """Have SIGINT raise, whatever the tests were started under."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def struck(act: Callable[[], object], place: int) -> bool:
    """Have a Ctrl-C strike at the ``place``-th operation of Python's code in ``act``; False past the last."""
    left = place

    def local(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGINT)
        return local

    def trace(frame: FrameType, _event: str, _arg: object) -> Any:
        inside = frame.f_code.co_filename in {subprocess.__file__, Child.ends.__code__.co_filename}
        if inside:
            frame.f_trace_opcodes = True
        return local if inside else None

    sys.settrace(trace)
    try:
        act()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return left <= 0


def test_an_end_is_found_wherever_an_interrupt_struck_while_it_was_looked_for(tmp_path: Path) -> None:
    child = Child(SLEEPER, tmp_path / "log", os.environ)
    places = next(n for n in range(1, PLACES_MAX) if not struck(lambda: child.running, n))
    assert places > 10, "the trace saw nothing of the look"
    assert child.running
    child.send(signal.SIGKILL)
    assert child.ends(ENDS_S)


def test_an_agent_that_an_interrupt_met_as_it_started_is_known_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Struck(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **wishes: Any) -> None:
            super().__init__(*args, **wishes)
            started.append(self.pid)
            os.kill(os.getpid(), signal.SIGINT)

    started: list[int] = []
    monkeypatch.setattr(subprocess, "Popen", Struck)
    node = LocalNode("ada", tmp_path)
    with pytest.raises(KeyboardInterrupt):
        node.start(())
    assert started
    assert node.running
    node.kill(None)
    assert not node.running


def test_a_wait_is_ended_by_an_interrupt_and_by_its_bound(tmp_path: Path) -> None:
    child = Child(SLEEPER, tmp_path / "log", os.environ)
    assert not child.ends(0.0)
    interrupter = subprocess.Popen(["/bin/sh", "-c", f"sleep 0.3; kill -INT {os.getpid()}"])
    with pytest.raises(KeyboardInterrupt):
        child.ends(ENDS_S)
    interrupter.wait(ENDS_S)
    child.send(signal.SIGKILL)
    until(lambda: not child.running, ENDS_S, "it was killed and lives")
