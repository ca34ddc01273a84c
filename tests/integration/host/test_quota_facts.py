"""What a node says of itself inside a real control group."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from support.cgroups import cpu_group
from support.waiting import until

ASK = """
import json
from daisychain.host.hardware import hardware
from daisychain.host.limits import read_limits
facts = hardware()
print(json.dumps([read_limits().cpus, facts.cores, facts.cores_reason]))
"""


@pytest.mark.parametrize(("cpus", "cores"), [(0.25, 1), (1.0, 1), (1.5, 2)])
def test_a_quota_bounds_the_cores_that_a_node_tells(cpus: float, cores: int) -> None:
    with cpu_group(cpus) as group:
        answer = subprocess.run(
            group.starting([sys.executable, "-c", ASK]),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    found, usable, reason = json.loads(answer.stdout)
    present = len(os.sched_getaffinity(0))
    assert found == pytest.approx(cpus)
    assert usable == min(cores, present)
    if cores < present:
        assert reason == f"a quota of {cpus:.3g} CPUs"


def test_a_group_is_gone_with_whoever_was_inside() -> None:
    with cpu_group(0.5) as group:
        sleeper = subprocess.Popen(group.starting(["sleep", "600"]))
        until(lambda: sleeper.pid in group.pids(), 10.0, "nobody inside")
    assert sleeper.wait(10) == -9
    assert not group.folder.exists()
