"""Confines the trainer to its run: facts of this process in, kernel told, what was done returned in words."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from daisychain.core.job_spec import PythonModel
from daisychain.core.orders import LoadRun
from daisychain.errors import JobError
from daisychain.trainer.sandbox.capabilities import drop_capabilities
from daisychain.trainer.sandbox.landlock import landlock_abi, restrict
from daisychain.trainer.sandbox.policy import Facts, make_policy
from daisychain.wire.job_yaml import parse_job

JOB_FILE = "job.yaml"

SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/gnu/store",
    "/run/opengl-driver",
    "/proc",  # the kernel itself refuses the memory and the environment of whoever is not confined alike
    "/sys",
)
"""Programs, libraries and facts of the machine; what is missing here is passed over."""

CONFIGURATION = (
    "alternatives",
    "ca-certificates",
    "debian_version",
    "fonts",
    "gai.conf",
    "group",
    "host.conf",
    "hostname",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "nvidia",
    "OpenCL",
    "os-release",
    "passwd",
    "pki",
    "protocols",
    "resolv.conf",
    "services",
    "ssl",
    "timezone",
    "vulkan",
)
"""In /etc: what libraries look up. The rest (a password's hash, another program's secret) is hidden."""

DEVICES = (
    "null",
    "zero",
    "full",
    "random",
    "urandom",
    "tty",
    "kfd",
    "dri",
    "dxg",
    "nvidia*",
)
SHARED = ("/dev/shm",)  # noqa: S108 - named to be permitted; torch and multiprocessing share memory there


@dataclass(frozen=True, slots=True)
class Confinement:
    """What became of it.

    Attributes:
        abi: the kernel's Landlock; 0 = none, and the process is as free as its user.
        rules: how many permissions stand.
        notes: what is open or shut against expectation, in words; see `rights.missing` besides.
    """

    abi: int
    rules: int
    notes: tuple[str, ...]


def confine(order: LoadRun) -> Confinement:
    """Take from this process what the run of ``order`` does not need; for good, and for all that it starts.

    Call it while the process has one thread: the kernel confines that one and its descendants. Raises OSError
    when a kernel with Landlock refuses: job code must then not run.
    """
    drop_capabilities()
    abi = landlock_abi()
    if abi == 0:
        return Confinement(0, 0, ())
    policy = make_policy(_facts(order, _has_code(Path(order.job_folder))), _entries)
    notes = [*policy.notes]
    if threads := _other_threads():
        notes.append(f"{threads} threads were there already and are not confined")
    return Confinement(abi, restrict(policy.rules, abi), tuple(notes))


def _facts(order: LoadRun, has_code: bool) -> Facts:
    schemes = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    interpreter = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, *schemes}
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    package = Path(__file__).parents[3]  # an installation for developers lies in no other place of these
    return Facts(
        readable=_real((*SYSTEM, *(f"/etc/{name}" for name in CONFIGURATION), *interpreter, *libraries)),
        importable=_real((*sys.path, str(package))),
        devices=_real(map(str, (each for pattern in DEVICES for each in Path("/dev").glob(pattern)))),
        shared=_real(SHARED),
        job_folder=os.path.realpath(order.job_folder),
        run_folder=os.path.realpath(order.run_folder),
        cache_folder=os.path.realpath(order.cache_folder) if order.cache_folder and not has_code else None,
        hidden=_real(order.hidden),
    )


def _has_code(job_folder: Path) -> bool:
    """Whether the job brings code of its own; where its job.yaml cannot be read it is taken to."""
    try:
        return isinstance(parse_job((job_folder / JOB_FILE).read_text("utf-8")).model, PythonModel)
    except (OSError, UnicodeDecodeError, JobError):
        return True


def _real(paths: Iterable[str | None]) -> tuple[str, ...]:
    """Return the paths without their symbolic links; "" is none, and would be the working folder."""
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths if path))


def _entries(folder: str) -> list[str]:
    """Return what lies in ``folder``; a link's target is no part of it, and needs a rule of its own."""
    try:
        return [entry.path for entry in os.scandir(folder) if not entry.is_symlink()]
    except OSError:
        return []


def _other_threads() -> int:
    """Return how many threads this process has beside the calling one."""
    try:
        return len(list(Path("/proc/self/task").iterdir())) - 1
    except OSError:
        return 0
