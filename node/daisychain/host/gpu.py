"""Which NVIDIA GPU this node can use, asked of nvidia-smi: before torch, and without it.

A driver that is too old for CUDA 12 makes torch fail in ways that do not name the cause, so the driver
is judged first. The limits are those of the torch builds that the images carry (FIELD-NOTES): compute
capability 5.0 (Maxwell) at least, driver 525.60 on Linux and 528.33 on Windows.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from daisychain.host.versions import is_cpu_build

MIB = 1024**2
LEAST_CAPABILITY = (5, 0)
LEAST_DRIVER_LINUX = (525, 60)
LEAST_DRIVER_WINDOWS = (528, 33)

ASK_TIMEOUT_S = 10.0
"""Most seconds for nvidia-smi: with a broken driver it hangs; without persistence mode it takes two."""

GPUS_MAX = 16
"""Most lines of its answer that are read."""

_FIELDS = ("name", "memory.total", "driver_version", "compute_cap")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One NVIDIA GPU as nvidia-smi tells it.

    ``capability`` and ``driver`` are None when it does not tell: nvidia-smi before 510 knows no capability.
    """

    name: str
    memory_bytes: int
    driver: tuple[int, ...] | None
    capability: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class GpuList:
    """The GPUs found. ``reason``: why there are none; empty otherwise."""

    gpus: tuple[Gpu, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """What a node computes on.

    Attributes:
        device: ``cpu``, or e.g. ``cuda: NVIDIA GeForce GTX 970 (5.2)``.
        reason: why, for people.
    """

    device: str
    reason: str


def list_gpus(command: tuple[str, ...] = ("nvidia-smi",)) -> GpuList:
    """Return this machine's NVIDIA GPUs. Blocks for at most twice ASK_TIMEOUT_S; never raises."""
    try:
        answer = _ask(command, _FIELDS)
        if answer.returncode != 0 and "compute_cap" in answer.stdout + answer.stderr:
            answer = _ask(command, _FIELDS[:-1])  # an nvidia-smi that does not know that field
    except FileNotFoundError:
        return GpuList((), "no NVIDIA driver is installed")
    except subprocess.TimeoutExpired:
        return GpuList((), f"nvidia-smi did not answer within {ASK_TIMEOUT_S:g} s: the driver is broken")
    except OSError as error:
        return GpuList((), f"nvidia-smi cannot be run: {error.strerror}")
    if answer.returncode != 0:
        told = (answer.stdout + answer.stderr).strip().splitlines()
        return GpuList(
            (), f"nvidia-smi failed: {told[0][:200] if told else f'exit code {answer.returncode}'}"
        )
    gpus = parse_gpus(answer.stdout)
    return GpuList(gpus, "" if gpus else "nvidia-smi lists no GPU")


def _ask(command: tuple[str, ...], fields: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=ASK_TIMEOUT_S,
        check=False,
        text=True,
        encoding="utf-8",
        errors="replace",
    )


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """Return the GPUs of nvidia-smi's answer; lines of another shape are left out."""
    found = []
    for line in text.splitlines()[:GPUS_MAX]:
        parts = [part.strip() for part in line.split(",")]
        if len(parts) not in (3, 4) or not parts[0]:
            continue
        memory = int(parts[1]) * MIB if parts[1].isdigit() else 0
        capability = _numbers(parts[3]) if len(parts) == 4 else None
        exact = (capability[0], capability[1]) if capability and len(capability) == 2 else None
        found.append(Gpu(parts[0], memory, _numbers(parts[2]), exact))
    return tuple(found)


def _numbers(text: str) -> tuple[int, ...] | None:
    parts = text.split(".")
    return tuple(map(int, parts)) if all(part.isdigit() for part in parts) else None


def why_unusable(gpu: Gpu, platform: str) -> str | None:
    """Return why torch cannot compute on this GPU; None when it can."""
    least = LEAST_DRIVER_WINDOWS if platform == "win32" else LEAST_DRIVER_LINUX
    if gpu.driver is None:
        return f"{gpu.name}: its driver tells no version"
    if gpu.driver < least:
        return (
            f"{gpu.name}: driver {'.'.join(map(str, gpu.driver))} is older than {'.'.join(map(str, least))}, "
            "which CUDA 12 needs; update it (Kepler cards have no newer one)"
        )
    if gpu.capability is None:
        return f"{gpu.name}: nvidia-smi tells no compute capability"
    if gpu.capability < LEAST_CAPABILITY:
        return (
            f"{gpu.name}: compute capability {_dotted(gpu.capability)} is below {_dotted(LEAST_CAPABILITY)}, "
            "which torch no longer supports"
        )
    return None


def choose_device(found: GpuList, torch_version: str | None, platform: str) -> DeviceChoice:
    """Return what this node computes on: its first usable GPU with the most memory, else the CPU."""
    if not found.gpus:
        return DeviceChoice("cpu", found.reason)
    refusals = [why for gpu in found.gpus if (why := why_unusable(gpu, platform)) is not None]
    usable = [gpu for gpu in found.gpus if why_unusable(gpu, platform) is None]
    if not usable:
        return DeviceChoice("cpu", "; ".join(refusals))
    best = max(usable, key=lambda gpu: gpu.memory_bytes)
    if torch_version is None or is_cpu_build(torch_version):
        build = f"torch {torch_version} is a CPU build" if torch_version else "torch is not installed"
        return DeviceChoice("cpu", f"{best.name} would do, but {build}")
    name = f"cuda: {best.name} ({_dotted(best.capability or LEAST_CAPABILITY)})"
    return DeviceChoice(
        name, "; ".join([f"driver and capability suffice ({best.memory_bytes // MIB} MiB)", *refusals])
    )


def arch_runs(capability: tuple[int, int], arch_list: tuple[str, ...]) -> bool:
    """Return whether a build of torch with these architectures has code for the capability.

    Machine code (``sm_50``) runs on the same major version with an equal or higher minor one; portable
    code (``compute_90``) on every capability that is not lower; ``sm_90a`` on exactly that one.
    """
    for arch in arch_list:
        kind, _, digits = arch.partition("_")
        if not digits.isdigit() or len(digits) < 2:
            if digits[:-1].isdigit() and kind == "sm" and _split(digits[:-1]) == capability:
                return True
            continue
        major, minor = _split(digits)
        if kind == "sm" and major == capability[0] and minor <= capability[1]:
            return True
        if kind == "compute" and (major, minor) <= capability:
            return True
    return False


def _split(digits: str) -> tuple[int, int]:
    return int(digits[:-1]), int(digits[-1])


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"
