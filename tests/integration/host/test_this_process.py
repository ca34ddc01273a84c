"""What a process asks of the kernel for itself: orphans come home and are ended, its memory is shut."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from daisychain.host.this_process import END_S, descends_from_here

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other kernels have none of it")

AGENT = """
import os, subprocess, sys, time
from daisychain.host import this_process

assert this_process.adopt_orphans()
own = subprocess.Popen(["sleep", "60"], process_group=0)
command = [sys.executable, "-c", {job!r}]
trainer = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True)
left = [int(trainer.stdout.readline()) for _ in range(3)]
assert all(this_process.descends_from_here(pid) for pid in left), "while it lives"
trainer.kill()
trainer.wait()
began_at = time.monotonic()
assert this_process.end_orphans() == 0
took_s = time.monotonic() - began_at
for pid in left:
    assert not os.path.exists(f"/proc/{{pid}}"), "ended, and cleared away"
assert own.poll() is None, "what the agent itself started is left alone"
own.kill()
own.wait()
print(took_s)
"""

JOB = """
import os, signal, sys, time

for how in ("forked", "in a session of its own", "with children of its own"):
    reading, writing = os.pipe()
    if os.fork() == 0:
        if how != "forked":
            os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if how == "with children of its own":
                for _ in range(3):
                    if os.fork() == 0:
                        os.setsid()
            os.write(writing, f"{os.getpid()}\\n".encode())
            while True:
                time.sleep(60)
        os._exit(0)
    os.wait()
    print(os.read(reading, 32).split()[0].decode(), flush=True)
time.sleep(60)
"""

ZOMBIES = """
import os, subprocess, sys, time
from daisychain.host import this_process

this_process.adopt_orphans()
script = "for i in 1 2 3; do (setsid sleep 0 &) ; done; sleep 60"
trainer = subprocess.Popen(["sh", "-c", script], start_new_session=True)
deadline = time.monotonic() + 20
while len(this_process._orphans()) < 4 and time.monotonic() < deadline:
    time.sleep(0.01)
assert len(this_process._orphans()) == 4, this_process._orphans()
while len(this_process._orphans()) > 1 and time.monotonic() < deadline:
    this_process.reap_orphans(trainer.pid)
assert this_process._orphans() == [trainer.pid]
assert trainer.poll() is None
trainer.kill()
trainer.wait()
this_process.end_orphans()
"""

SHUT = """
import os, sys
from daisychain.host.this_process import shut_memory
from daisychain.trainer.sandbox.capabilities import drop_capabilities

drop_capabilities()
if sys.argv[1] == "shut":
    assert shut_memory()
open("/proc/self/maps").read()
os.listdir("/proc/self/fd")
open("/proc/self/cgroup").read()
print("ready", flush=True)
sys.stdin.read()
"""

LOOKING = """
import ctypes, sys
from daisychain.trainer.sandbox.capabilities import drop_capabilities

drop_capabilities()  # no plain user has any; root with all of them may look at everything
pid = int(sys.argv[1])
for name in ("environ", "mem", "maps"):
    try:
        open(f"/proc/{pid}/{name}", "rb").read(1)
    except PermissionError:
        continue
    sys.exit(f"{name} was read")
if ctypes.CDLL(None).ptrace(16, pid, None, None) == 0:
    sys.exit("traced")
"""


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_a_trainer_left_is_ended_wherever_it_went() -> None:
    assert float(run(AGENT.format(job=JOB))) < END_S


def test_what_ended_by_itself_is_cleared_away_while_the_trainer_lives() -> None:
    run(ZOMBIES)


@pytest.mark.parametrize("how", ["shut", "open"])
def test_a_process_of_the_same_user_cannot_look_into_the_agent(how: str) -> None:
    agent = subprocess.Popen(
        [sys.executable, "-c", SHUT, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == "ready\n"
        command = [sys.executable, "-c", LOOKING, str(agent.pid)]
        looking = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
        agent.kill()
    told = "" if how == "shut" else "environ was read\n"
    assert looking.stderr == told


def test_who_descends_from_this_process_is_known() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        assert descends_from_here(child.pid)
        assert descends_from_here(os.getpid())
        assert not descends_from_here(os.getppid())
        assert not descends_from_here(1)
        child.kill()
    assert descends_from_here(child.pid), "who just ended may have been one"
