"""What control groups let a process use, read from file trees as containers show them."""

from __future__ import annotations

from pathlib import Path

from daisychain.host.hardware import WINDOWS_REMEDY, judge_hardware, why_no_training
from daisychain.host.limits import Limits, byte_limit, cpu_quota, read_limits

GIB = 1024**3


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_version_2_in_a_container_of_its_own_namespace(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/memory.max": f"{2 * GIB}\n",
        },
    )
    assert read_limits(root) == Limits(1.5, 2 * GIB)


def test_version_2_takes_the_least_of_all_levels(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/system.slice/node.service\n",
            "sys/fs/cgroup/system.slice/cpu.max": "200000 100000\n",
            "sys/fs/cgroup/system.slice/node.service/cpu.max": "max 100000\n",
            "sys/fs/cgroup/system.slice/memory.max": "max\n",
            "sys/fs/cgroup/system.slice/node.service/memory.max": f"{GIB}\n",
        },
    )
    assert read_limits(root) == Limits(2.0, GIB)


def test_version_1_in_a_container_whose_path_is_the_hosts(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=x:/docker/abc\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GIB}\n",
        },
    )
    assert read_limits(root) == Limits(0.5, GIB)


def test_no_limit_is_told_as_none(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "2:memory:/\n1:cpu:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert read_limits(root) == Limits(None, None)
    assert read_limits(tmp_path / "nothing") == Limits(None, None)


def test_nonsense_in_the_files_is_no_limit() -> None:
    assert cpu_quota("max 100000") is None
    assert cpu_quota("100000") is None
    assert cpu_quota("100000 0") is None
    assert byte_limit("lots") is None
    assert byte_limit("0") is None


def test_what_is_usable_is_the_least_of_machine_affinity_and_quota() -> None:
    free = judge_hardware("linux", 8, 8, 16 * GIB, Limits(None, None))
    assert (free.cores, free.memory_bytes) == (8, 16 * GIB)
    pinned = judge_hardware("linux", 8, 3, 16 * GIB, Limits(6.0, None))
    assert pinned.cores == 3 and "3 of the machine's 8" in pinned.cores_reason
    quota = judge_hardware("linux", 8, 8, 16 * GIB, Limits(1.5, 2 * GIB))
    assert (quota.cores, quota.memory_bytes) == (2, 2 * GIB)
    assert "1.5 CPUs" in quota.cores_reason and "2.0 GiB" in quota.memory_reason
    assert judge_hardware("linux", 8, 8, GIB, Limits(0.25, 2 * GIB)).cores == 1


def test_native_windows_is_refused_with_the_way_out() -> None:
    refusal = why_no_training("win32")
    assert refusal is not None and "native Windows" in refusal
    assert "Docker Desktop" in WINDOWS_REMEDY and "WSL" in WINDOWS_REMEDY
    assert why_no_training("linux") is None
    assert why_no_training("darwin") is None
