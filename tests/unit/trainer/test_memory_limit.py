"""What a trainer may allocate: the default, and what is left of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from daisychain.host.hardware import GIB, trainer_memory_bytes
from daisychain.trainer.sandbox import memory_limit


@pytest.mark.parametrize(
    ("machine", "trainer"),
    [(64, 62), (16, 14), (8, 7), (4, 3.5), (2, 1.75), (1, 0.75), (0.5, 0.5), (0.25, 0.5)],
)
def test_the_agent_and_the_machine_keep_some_memory(machine: float, trainer: float) -> None:
    assert trainer_memory_bytes(int(machine * GIB)) == trainer * GIB


def test_what_is_left_is_the_bound_less_what_is_allocated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = pytest.importorskip("resource")
    file = tmp_path / memory_limit.STATUS
    file.parent.mkdir(parents=True)
    file.write_text("Name:\tx\nVmSize:\t  900000 kB\nVmData:\t  300000 kB\nVmStk:\t 1 kB\n")
    monkeypatch.setattr(sys, "platform", "linux")
    for bound, left in ((1 << 30, (1 << 30) - 300000 * 1024), (1 << 20, 0), (resource.RLIM_INFINITY, None)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, bound=bound: (bound, bound))
        assert memory_limit.left_within_limit(tmp_path) == left
