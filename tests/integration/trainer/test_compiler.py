"""torch's compiler stays out of a trainer until somebody compiles, and nothing else changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

STEPS = """
import sys
{first}
import torch

def weights(optimizer):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    steps = optimizer(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(steps, 2)
    for _ in range(5):
        steps.zero_grad()
        model(torch.rand(4, 8)).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        steps.step()
        schedule.step()
    return [each.tolist() for each in model.parameters()]

optim = torch.optim
makers = [optim.Adam, optim.AdamW, lambda p: optim.SGD(p, lr=0.1, momentum=0.9), optim.RMSprop]
print([weights(make) for make in makers])
print("torch._dynamo.convert_frame" in sys.modules)
{last}
"""

POSTPONE = "from daisychain.trainer.compiler import postpone; postpone()"


def told(first: str, last: str = "") -> list[str]:
    """Return the lines of a fresh process that trains a little."""
    program = STEPS.format(first=first, last=last)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_optimizers_step_alike_without_the_compiler() -> None:
    plain, postponed = told(""), told(POSTPONE)
    assert plain[1] == "True"
    assert postponed[1] == "False"
    assert postponed[0] == plain[0]


def test_whoever_compiles_gets_the_compiler() -> None:
    use = """
import inspect, torch._dynamo.config
inspect.stack()  # asks every loaded module for its file
double = torch.compile(lambda x: x * 2, backend="eager")
print(double(torch.ones(2)).tolist(), "torch._dynamo.convert_frame" in sys.modules)
before = weights(optim.Adam)
print(before == weights(optim.Adam))

@torch._dynamo.disable
def left_alone(x):
    return x + 1

print(left_alone(1))
"""
    assert told(POSTPONE, use)[2:] == ["[2.0, 2.0] True", "True", "2"]


def test_a_trainer_trains_without_it(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "job.yaml").write_text("kind: python\nfile: net.py\nglobal_batch_size: 4\nsteps: 3\n")
    (job / "net.py").write_text(
        "import sys, torch\n"
        "def model():\n    return torch.nn.Linear(2, 1)\n"
        "def dataset(split):\n    return torch.ones(8, 2) if split == 'train' else None\n"
        "def loss(model, x):\n"
        "    assert 'torch._dynamo.convert_frame' not in sys.modules\n"
        "    assert 'sympy' not in sys.modules  # a computer algebra system, a second of every start\n"
        "    return model(x).square().mean()\n"
    )
    command = [sys.executable, "-m", "daisychain.cli", "run", "--state-folder", str(tmp_path / "state")]
    done = subprocess.run([*command, str(job)], capture_output=True, text=True, check=False, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr
