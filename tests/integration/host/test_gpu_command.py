"""GPUs through an executable that behaves as nvidia-smi does."""

from __future__ import annotations

from pathlib import Path

import pytest

from daisychain.host import gpu
from daisychain.host.gpu import choose_device, list_gpus
from support.stand_ins import stand_in

MODERN = """
if sys.argv[1:] != [
    "--query-gpu=name,memory.total,driver_version,compute_cap", "--format=csv,noheader,nounits"
]:
    sys.exit(2)
print("NVIDIA GeForce GTX 970, 4096, 535.183.01, 5.2")
"""

OLD = """
if "compute_cap" in sys.argv[1]:
    print('Field "compute_cap" is not a valid field to query.')
    sys.exit(2)
print("Tesla K80, 11441, 470.82.01")
"""

BROKEN = """
print("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
sys.exit(9)
"""


def smi(folder: Path, body: str) -> tuple[str, ...]:
    return (str(stand_in(folder, "nvidia-smi", body)),)


def test_a_modern_card_is_used(tmp_path: Path) -> None:
    found = list_gpus(smi(tmp_path, MODERN))
    assert choose_device(found, "2.13.0+cu126", "linux").device == "cuda: NVIDIA GeForce GTX 970 (5.2)"


def test_a_kepler_card_with_its_last_driver_falls_back_to_the_cpu_with_the_reason(tmp_path: Path) -> None:
    found = list_gpus(smi(tmp_path, OLD))
    choice = choose_device(found, "2.13.0+cu126", "linux")
    assert choice.device == "cpu"
    assert "Tesla K80: driver 470.82.1 is older than 525.60" in choice.reason


def test_a_broken_driver_is_told(tmp_path: Path) -> None:
    assert "couldn't communicate" in list_gpus(smi(tmp_path, BROKEN)).reason
    assert list_gpus(smi(tmp_path, "")).reason == "nvidia-smi lists no GPU"
    assert list_gpus(("no-such-nvidia-smi",)).reason == "no NVIDIA driver is installed"
    assert "cannot be run" in list_gpus((str(tmp_path),)).reason


def test_a_driver_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "ASK_TIMEOUT_S", 0.3)
    found = list_gpus(smi(tmp_path, "import signal\nsignal.pause()"))
    assert "did not answer within 0.3 s" in found.reason
