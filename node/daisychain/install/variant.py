"""Whether a node's containers compute on an NVIDIA card, with which CUDA, and why not: pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from daisychain.host.gpu import MIB, Gpu, why_unusable
from daisychain.install.facts import Facts, System

BLACKWELL = (10, 0)
"""From this capability on (RTX 50: 12.0) torch's cu126 builds have no code."""

LEAST_DRIVER_CU130 = (580,)
"""CUDA 13 loads with no older driver, on Linux or Windows."""

TOOLKIT = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/"
X86 = ("x86_64", "amd64")


class Variant(StrEnum):
    """Which image."""

    CPU = "cpu"
    CUDA = "cuda"


class Cuda(StrEnum):
    """Which of torch's CUDA builds is in the CUDA image."""

    CU126 = "cu126"  # Maxwell to Hopper: capability 5.0 to 9.0
    CU130 = "cu130"  # Blackwell


@dataclass(frozen=True, slots=True)
class Card:
    """The build for the best usable card. ``reason``: which one, and why not the others."""

    cuda: Cuda
    reason: str


@dataclass(frozen=True, slots=True)
class VariantChoice:
    """What suits a machine, and why. ``cuda`` is None for the CPU."""

    variant: Variant
    cuda: Cuda | None
    reason: str


def choose_variant(facts: Facts) -> VariantChoice:
    """Return the image that suits these facts, and why."""
    card = card_for_cuda(facts)
    if isinstance(card, str):
        return VariantChoice(Variant.CPU, None, card)
    return VariantChoice(Variant.CUDA, card.cuda, card.reason)


def card_for_cuda(facts: Facts) -> Card | str:
    """Return the card that containers could use; a text says why there is none.

    The usable card with the most memory decides the build; one that its driver or its age rules out is named.
    """
    if facts.system is System.MACOS:
        return "macOS gives containers no graphics card"
    if not facts.gpus.gpus:
        return facts.gpus.reason
    if facts.machine not in X86:
        return f"the CUDA image is for x86-64, this machine is {facts.machine or 'of an unknown kind'}"
    refusals = [why for gpu in facts.gpus.gpus if (why := _why_not(gpu, facts.system))]
    usable = [gpu for gpu in facts.gpus.gpus if not _why_not(gpu, facts.system)]
    if not usable:
        return "; ".join(refusals)
    best = max(usable, key=lambda gpu: gpu.memory_bytes)
    if not facts.toolkit:
        return (
            f"{best.name} would do, but this Docker gives containers no card: install the NVIDIA Container "
            f"Toolkit ({TOOLKIT}) and run this again with --variant cuda"
        )
    told = f"{best.name} ({best.memory_bytes // MIB} MiB, capability {_dotted(best.capability or ())})"
    return Card(_build_for(best), "; ".join([told, *refusals]))


def _build_for(gpu: Gpu) -> Cuda:
    return Cuda.CU130 if gpu.capability is not None and gpu.capability >= BLACKWELL else Cuda.CU126


def _why_not(gpu: Gpu, system: System) -> str:
    """Return why a card cannot be used; empty when it can. In WSL the driver is the one of Windows."""
    why = why_unusable(gpu, "linux" if system is System.LINUX else "win32")
    if why is None and _build_for(gpu) is Cuda.CU130 and (gpu.driver or ()) < LEAST_DRIVER_CU130:
        return (
            f"{gpu.name}: driver {_dotted(gpu.driver or ())} is older than {_dotted(LEAST_DRIVER_CU130)}, "
            "which CUDA 13 needs, and only CUDA 13 knows this card; update it"
        )
    return why or ""


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
