"""Micro-batches fit the memory; what was freed is kept."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest
import torch

from daisychain.trainer.engine import memory
from daisychain.trainer.engine.capacity import fit_memory
from daisychain.trainer.engine.compute import MICRO_BATCH
from support.engine_jobs import CLASSES, FEATURES, Recipe


@pytest.mark.parametrize(
    ("bytes_per_sample", "free", "expected"),
    [(0.0, 10, 1024), (1000.0, 400_000, 100), (1000.0, 1 << 40, 1024), (1e9, 1 << 20, 1), (1000.0, 0, 1)],
)
def test_a_micro_batch_takes_a_quarter_of_what_is_free(
    bytes_per_sample: float, free: int, expected: int
) -> None:
    assert memory.micro_batch(bytes_per_sample, free, 1024) == expected


def test_what_forward_keeps_for_backward_is_counted() -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 100), torch.nn.Tanh(), torch.nn.Linear(100, CLASSES)
    )
    x = torch.zeros(50, FEATURES)
    with memory.Kept(tuple(model.parameters())) as kept:
        model(x).sum().backward()
    assert kept.bytes == 4 * 50 * (FEATURES + 100), "the input and tanh's output, the weights left out"


def test_micro_batches_shrink_where_memory_is_short() -> None:
    engine = Recipe(batch=24).engine()
    fit_memory(engine, free=1 << 40)
    assert engine.computer.largest == MICRO_BATCH
    fit_memory(engine, free=4 * 8 * 10 * (FEATURES + 16))
    assert 1 <= engine.computer.largest < 12
    assert len(engine.computer.pieces(24, range(24))) > 1


def test_with_granules_nothing_is_bounded() -> None:
    engine = Recipe(granules=True).engine()
    fit_memory(engine, free=1)
    assert engine.computer.largest == MICRO_BATCH


def group(folder: Path, names: tuple[str, str], limit: str, used: int, stat: str = "") -> None:
    """Write a control group's memory files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in zip((*names, "memory.stat"), (limit, str(used), stat), strict=True):
        (folder / name).write_text(f"{text}\n")


VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")
VERSION_2 = ("memory.max", "memory.current")


@pytest.mark.parametrize(
    ("membership", "base", "names", "inactive"),
    [
        ("0::/daisychain/node\n", "", VERSION_2, "inactive_file"),
        ("5:cpu,cpuacct:/x\n4:memory:/daisychain/node\n", "memory", VERSION_1, "total_inactive_file"),
    ],
    ids=["version 2", "version 1"],
)
def test_the_tightest_control_group_on_the_way_up_bounds_what_is_free(
    tmp_path: Path, membership: str, base: str, names: tuple[str, str], inactive: str
) -> None:
    host = torch.device("cpu")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(membership)
    assert memory.free_bytes(host, tmp_path) > 1 << 20, "groups that are not there bound nothing"
    mount = tmp_path / "sys/fs/cgroup" / base
    group(mount, names, "max" if not base else str(1 << 62), 10)
    group(mount / "daisychain", names, "1000", 600)
    group(mount / "daisychain/node", names, "max" if not base else str(1 << 62), 600)
    assert memory.free_bytes(host, tmp_path) == 400
    group(mount / "daisychain/node", names, "900", 700, f"anon 400\n{inactive} 100")
    assert memory.free_bytes(host, tmp_path) == 300, "cached files are given up at need"
    group(mount / "daisychain/node", names, "900", 950)
    assert memory.free_bytes(host, tmp_path) == 0


def test_without_control_groups_the_machine_s_memory_counts(tmp_path: Path) -> None:
    assert memory.free_bytes(torch.device("cpu"), tmp_path) > 1 << 20


def test_glibc_takes_the_setting() -> None:
    assert memory.keep_freed() == (sys.platform == "linux" and platform.libc_ver()[0] == "glibc")
