"""The kernel's part of the sandbox: what a confined process and its children can do, tried for real."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from daisychain.trainer.sandbox.landlock import landlock_abi

pytestmark = pytest.mark.skipif(landlock_abi() == 0, reason="this kernel has no Landlock")

CONFINED = """
import json, os, signal, socket, subprocess, sys, tempfile
from pathlib import Path
from daisychain.core.ids import NodeId, RunId
from daisychain.core.orders import LoadRun
from daisychain.trainer.sandbox.confine import confine

base = Path(sys.argv[1])
state, jobs = base / "state", base / "jobs"
run, job = state / "runs" / "r", jobs / "a"
os.chdir(run)
order = LoadRun(
    RunId("r"), NodeId("n"), "a", str(job), str(run), cache_folder=str(state / "cache"),
    hidden=(str(state), str(state / "cluster.key"), str(jobs)),
)
confined = confine(order)
told = {"abi": confined.abi, "notes": confined.notes}

def tried(name, work):
    try:
        work()
        told[name] = "done"
    except OSError as error:
        told[name] = type(error).__name__

def linked():
    os.link(state / "cluster.key", run / "mine")

def through_link():
    (run / "link").symlink_to(state / "cluster.key")
    (run / "link").read_text()

def renamed():
    (job / "new").mkdir()
    (job / "new" / "f").write_text("x")
    (job / "new").rename(job / "result")

def by_child():
    if subprocess.run(["cat", str(state / "cluster.key")], capture_output=True).returncode:
        raise PermissionError

def child_works():
    subprocess.run([sys.executable, "-c", "import socket, hashlib, json"], check=True)

def abstract():
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("\\0" + sys.argv[2])

tried("key", (state / "cluster.key").read_text)
tried("key written", lambda: (state / "cluster.key").write_text(""))
tried("key removed", (state / "cluster.key").unlink)
tried("key linked", linked)
tried("key through a link", through_link)
tried("key by a child", by_child)
tried("state listed", lambda: list(state.iterdir()))
tried("state moved", lambda: state.rename(base / "elsewhere"))
tried("other run", (state / "runs" / "other" / "metrics.jsonl").read_text)
tried("other job", (jobs / "b" / "job.yaml").read_text)
tried("cache", (state / "cache" / "rows").read_text)
tried("home", lambda: list(Path.home().iterdir()))
tried("written outside", lambda: (base / "new").write_text("x"))
tried("passwords", Path("/etc/shadow").read_text)
tried("parent's environment", Path(f"/proc/{os.getppid()}/environ").read_bytes)
tried("parent's memory", Path(f"/proc/{os.getppid()}/mem").open)
tried("parent signalled", lambda: os.kill(os.getppid(), 0))
tried("abstract socket", abstract)
tried("a device made", lambda: os.mknod(run / "dev", 0o20600, os.makedev(1, 3)))

tried("result", renamed)
tried("own job", (job / "job.yaml").read_text)
tried("run folder", lambda: (run / "metrics.jsonl").write_text("x"))
tried("temporary file", lambda: tempfile.TemporaryFile().close())
tried("own process", lambda: os.kill(os.getpid(), 0))
tried("child", child_works)
tried("shared memory", lambda: tempfile.TemporaryFile(dir="/dev/shm").close())
tried("null", lambda: Path("/dev/null").write_text("x"))
tried("facts", Path("/proc/meminfo").read_text)
print(json.dumps(told))
"""

REFUSED = (
    "key",
    "key written",
    "key removed",
    "key linked",
    "key through a link",
    "key by a child",
    "state listed",
    "state moved",
    "other run",
    "other job",
    "home",
    "written outside",
    "passwords",
    "parent's environment",
    "parent's memory",
    "a device made",
)
WORKS = (
    "result",
    "own job",
    "run folder",
    "temporary file",
    "own process",
    "child",
    "shared memory",
    "null",
    "facts",
)


def tried(folder: Path, job: str) -> dict[str, Any]:
    """Return what a process confined to its run could do, by name."""
    for each in ("state/runs/r", "state/runs/other", "state/cache", "jobs/a", "jobs/b"):
        (folder / each).mkdir(parents=True)
    for file in (
        "state/cluster.key",
        "state/runs/other/metrics.jsonl",
        "state/cache/rows",
        "jobs/b/job.yaml",
    ):
        (folder / file).write_text("secret")
    (folder / "jobs/a/job.yaml").write_text(job)
    name = f"daisychain-test-{folder.name}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        done = subprocess.run(
            [sys.executable, "-c", CONFINED, str(folder), name],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 0, done.stderr
    assert (folder / "state" / "cluster.key").read_text() == "secret"
    told: dict[str, Any] = json.loads(done.stdout)
    return told


PYTHON = "kind: python\nfile: net.py\nglobal_batch_size: 8\nepochs: 1\n"
TABLE = "kind: table\ndata: a.csv\ntarget: y\ntask: regression\nglobal_batch_size: 8\nepochs: 1\n"


def test_a_confined_process_reaches_its_run_and_nothing_else(tmp_path: Path) -> None:
    told = tried(tmp_path, PYTHON)
    print(told)
    assert [name for name in REFUSED if told[name] == "done"] == []
    assert [name for name in WORKS if told[name] != "done"] == []
    assert told["cache"] == "PermissionError"
    signals = told["parent signalled"], told["abstract socket"]
    assert signals == (("PermissionError",) * 2 if told["abi"] >= 6 else ("done", "done"))


def test_a_table_reads_what_was_converted(tmp_path: Path) -> None:
    told = tried(tmp_path, TABLE)
    assert told["cache"] == "done"
    assert told["key"] == "PermissionError"
