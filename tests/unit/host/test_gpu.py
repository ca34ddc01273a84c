"""Which GPU is used, and why another is not."""

from __future__ import annotations

import pytest

from daisychain.host.gpu import Gpu, GpuList, arch_runs, choose_device, parse_gpus, why_unusable

GTX_970 = Gpu("NVIDIA GeForce GTX 970", 4 << 30, (535, 183, 1), (5, 2))
CU126 = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")


def test_the_answer_of_nvidia_smi_is_read() -> None:
    text = "NVIDIA GeForce GTX 970, 4096, 535.183.01, 5.2\nTesla K80, 11441, 470.82.01\n"
    modern, old = parse_gpus(text)
    assert modern == GTX_970
    assert old == Gpu("Tesla K80", 11441 << 20, (470, 82, 1), None)
    assert parse_gpus("No devices were found\n") == ()
    assert parse_gpus("X, [N/A], [N/A], [N/A]\n") == (Gpu("X", 0, None, None),)
    assert len(parse_gpus(text * 1000)) <= 16


@pytest.mark.parametrize(
    ("gpu", "platform", "told"),
    [
        (Gpu("K80", 1, (535, 1), (3, 7)), "linux", "compute capability 3.7 is below 5.0"),
        (Gpu("K80", 1, (470, 82, 1), None), "linux", "driver 470.82.1 is older than 525.60"),
        (Gpu("X", 1, (525, 59), (8, 6)), "linux", "older than 525.60"),
        (Gpu("X", 1, (528, 1), (8, 6)), "win32", "older than 528.33"),
        (Gpu("X", 1, None, (8, 6)), "linux", "no version"),
        (Gpu("X", 1, (535, 1), None), "linux", "no compute capability"),
    ],
)
def test_a_gpu_that_torch_cannot_use_is_refused_with_the_reason(gpu: Gpu, platform: str, told: str) -> None:
    why = why_unusable(gpu, platform)
    assert why is not None and told in why
    choice = choose_device(GpuList((gpu,), ""), "2.13.0+cu126", platform)
    assert choice.device == "cpu" and told in choice.reason


def test_the_usable_gpu_with_the_most_memory_is_used() -> None:
    small = Gpu("GT 1030", 2 << 30, (535, 1), (6, 1))
    old = Gpu("K80", 12 << 30, (535, 1), (3, 7))
    choice = choose_device(GpuList((small, old, GTX_970), ""), "2.13.0+cu126", "linux")
    assert choice.device == "cuda: NVIDIA GeForce GTX 970 (5.2)"
    assert "K80" in choice.reason


def test_a_cpu_build_of_torch_cannot_use_a_gpu() -> None:
    choice = choose_device(GpuList((GTX_970,), ""), "2.13.0+cpu", "linux")
    assert choice.device == "cpu" and "CPU build" in choice.reason
    assert choose_device(GpuList((), "no driver"), "2.13.0", "linux").reason == "no driver"


def test_code_runs_on_equal_majors_with_equal_or_higher_minors() -> None:
    assert arch_runs((5, 2), CU126)
    assert arch_runs((6, 1), CU126)
    assert arch_runs((8, 9), CU126)
    assert not arch_runs((3, 7), CU126)
    assert not arch_runs((12, 0), CU126)
    assert arch_runs((12, 0), (*CU126, "compute_90"))
    assert arch_runs((12, 0), ("sm_120",))
    assert arch_runs((9, 0), ("sm_90a",))
    assert not arch_runs((9, 1), ("sm_90a",))
    assert not arch_runs((9, 0), ("", "gfx90a", "sm_", "sm_x0"))
