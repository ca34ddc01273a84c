"""A job that reaches for the key, other folders, the agent and a life after its run, on a real agent."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from daisychain.core.jobs import JobState
from daisychain.trainer.sandbox.landlock import landlock_abi
from support.agent_node import is_gone
from support.agents import chain
from support.waiting import until

pytestmark = [
    pytest.mark.skipif(landlock_abi() == 0, reason="this kernel has no Landlock: job code is trusted here"),
]

HOSTILE = """
import ctypes, json, os, signal, socket, subprocess, sys, tempfile, time
from pathlib import Path

import torch
from torch import nn

STATE, JOBS, KEY = Path({state!r}), Path({jobs!r}), Path({key!r})
AGENT, TRIED = os.getppid(), {{}}
HERE = Path(__file__).parent


def tried(name, work):
    try:
        found = work()
        TRIED[name] = f"done: {{found!r:.200}}"
    except (OSError, RuntimeError) as error:
        TRIED[name] = type(error).__name__


def asked(path):
    with socket.socket(socket.AF_UNIX) as agent:
        agent.connect(str(STATE / "agent.sock"))
        agent.sendall(f"GET {{path}} HTTP/1.0\\r\\n\\r\\n".encode())
        said = agent.makefile("rb").read()
    if b" 409 " in said.splitlines()[0]:
        raise PermissionError
    return said


def asked_by_orphan():
    script = (
        "import os, socket, sys\\n"
        "if os.fork(): os._exit(0)\\n"
        "os.setsid()\\n"
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\\n"
        "s.sendall(b'GET /status HTTP/1.0\\\\r\\\\n\\\\r\\\\n')\\n"
        "open(sys.argv[2], 'wb').write(s.makefile('rb').readline())\\n"
    )
    subprocess.run([sys.executable, "-c", script,
                    str(STATE / "agent.sock"), "answer"], check=True)
    while not Path("answer").exists() or not Path("answer").read_bytes():
        time.sleep(0.01)
    if b" 409 " in Path("answer").read_bytes():
        raise PermissionError
    return Path("answer").read_bytes()


def traced():
    if ctypes.CDLL(None, use_errno=True).ptrace(16, AGENT, None, None) != 0:  # PTRACE_ATTACH
        raise OSError(ctypes.get_errno(), "ptrace")


def left_behind():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            Path("left").write_text(str(os.getpid()))
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                time.sleep(0.05)
        os._exit(0)


tried("the key", KEY.read_text)
tried("the identity", lambda: [each.read_bytes() for each in (STATE / "identity").iterdir()])
tried("the state folder", lambda: list(STATE.iterdir()))
tried("the ledger", (STATE / "ledger.json").read_text)
tried("another job", (JOBS / "other" / "job.yaml").read_text)
tried("the jobs folder", lambda: list(JOBS.iterdir()))
tried("writing outside", lambda: (JOBS / "new").mkdir())
tried("writing into the temporary folder of all", lambda: Path("/tmp/daisychain-hostile").write_text("x"))
tried("the agent's environment", Path(f"/proc/{{AGENT}}/environ").read_bytes)
tried("the agent's memory", Path(f"/proc/{{AGENT}}/mem").open)
tried("the agent's files", lambda: os.readlink(f"/proc/{{AGENT}}/fd/0"))
tried("tracing the agent", traced)
tried("asking the agent", lambda: asked("/status"))
if STATE.name != "nowhere":
    tried("asking the agent as an orphan", asked_by_orphan)
if {signals}:
    tried("signalling the agent", lambda: os.kill(AGENT, signal.SIGTERM))
if {log}:
    os.unlink("train.log")
    os.symlink(KEY, "train.log")
tried("own: a temporary file", lambda: tempfile.NamedTemporaryFile().close())
(HERE / "result").mkdir()
tried("own: a file in result", lambda: (HERE / "result" / "note").write_text("x"))
tried("own: its folder", lambda: sorted(each.name for each in HERE.iterdir()))
left_behind()
Path("environment").write_text(json.dumps(dict(os.environ)))
Path("tried.json").write_text(json.dumps(TRIED))
print("a line that must not end up in the key")


def model():
    return nn.Linear(2, 1)


def dataset(split):
    return torch.randn(64, 2), torch.zeros(64, 1)


def loss(model, batch):
    time.sleep(0.02)
    return nn.functional.mse_loss(model(batch[0]), batch[1])
"""

RUN_S = 60.0


def test_a_hostile_job_gets_at_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    with chain(tmp_path) as agents:
        jobs = agents.prepare("ada")
        state = agents.folder / "ada" / "state"
        for name in ("hostile", "other"):
            (jobs / name).mkdir()
        code = HOSTILE.format(
            state=str(state), jobs=str(jobs), key=str(agents.key), signals=landlock_abi() >= 6, log=False
        )
        (jobs / "hostile" / "net.py").write_text(code)
        recipe = "kind: python\nfile: net.py\nglobal_batch_size: 16\nepochs: 3\n"
        (jobs / "hostile" / "job.yaml").write_text(recipe)
        (jobs / "other" / "job.yaml").write_text("kind: python\nfile: net.py\nepochs: 0\n")
        key = agents.key.read_text()
        node = agents.start("ada")
        until(lambda: node.state_of("hostile") is JobState.FINISHED, RUN_S, "the hostile job goes on")
        run = next(each.parent for each in (state / "runs").glob("*/tried.json"))
        left = int((run / "left").read_text())
        until(lambda: is_gone(left), 5.0, "its process lives on")
        told = json.loads((run / "tried.json").read_text())
        print(told)
        own = {name for name in told if name.startswith("own: ")}
        assert [name for name in sorted(told) if (name in own) != told[name].startswith("done")] == []
        assert len(told) >= 17
        assert agents.key.read_text() == key
        environment = (run / "environment").read_text()
        assert str(agents.key) not in environment
        assert "DAISYCHAIN" not in environment
        assert (jobs / "hostile" / "result" / "summary.json").exists()
        assert node.process.poll() is None
        until(
            lambda: not (run / "tmp").exists(), 10.0, "its temporary files are left"
        )  # once its trainer ends


@pytest.mark.parametrize("how", ["cancelled", "killed"])
def test_a_process_left_behind_ends_with_its_trainer(tmp_path: Path, how: str) -> None:
    """Whether the run was cancelled or its trainer killed from outside."""
    with chain(tmp_path) as agents:
        jobs = agents.prepare("ada")
        (jobs / "hostile").mkdir()
        key = agents.key.read_text()
        told = {
            "state": "/nowhere",
            "jobs": "/nowhere",
            "key": str(agents.key),
            "signals": False,
            "log": True,
        }
        (jobs / "hostile" / "net.py").write_text(HOSTILE.format(**told))
        recipe = "kind: python\nfile: net.py\nglobal_batch_size: 16\nepochs: 10000\n"
        (jobs / "hostile" / "job.yaml").write_text(recipe)
        node = agents.start("ada")
        until(lambda: node.step() > 0, RUN_S, "it does not train")
        (note,) = (node.state / "runs").glob("*/left")
        left, trainer = int(note.read_text()), node.trainer_pid
        assert trainer is not None
        assert not is_gone(left)
        if how == "killed":
            os.kill(trainer, signal.SIGKILL)
        else:
            node.client.cancel("hostile")
        until(lambda: is_gone(left), 10.0, "its process lives on")
        assert node.process.poll() is None
        assert agents.key.read_text() == key, "what the job prints went through the link in its log's place"
