"""The environment of a trainer: what training needs, and nothing that is secret."""

from __future__ import annotations

from collections.abc import Mapping

KEPT = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "LANG",
        "TZ",
        "SYSTEMROOT",
        "LD_LIBRARY_PATH",
        "DYLD_LIBRARY_PATH",
        "PYTHONPATH",
        "PYTHONHOME",
        "VIRTUAL_ENV",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
    }
)
"""Variables handed on as they are; every other one stays with the agent."""

KEPT_PREFIXES = ("LC_", "NVIDIA_")


def trainer_environment(
    environ: Mapping[str, str], interface: str, threads: int, scratch: str
) -> dict[str, str]:
    """Return the environment for a trainer whose group binds ``interface`` ("" = not known).

    ``scratch``: the only folder that it finds temporary files and caches in; others are hidden from it.

    No key, no ``DAISYCHAIN_*`` and no token reaches the user's code: only the variables of KEPT do.
    Hash seeds are fixed, so that a job which iterates over a set sees one order on every node.
    """
    kept = {
        name: value
        for name, value in environ.items()
        if name.upper() in KEPT or name.upper().startswith(KEPT_PREFIXES)
    }
    kept |= {
        "TMPDIR": scratch,
        "XDG_CACHE_HOME": f"{scratch}/cache",
        "PYTHONUNBUFFERED": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",  # nothing of ours is written into the user's job folder
        "OMP_NUM_THREADS": str(max(1, threads)),
        "MKL_NUM_THREADS": str(max(1, threads)),
        "OMP_WAIT_POLICY": "PASSIVE",  # idle workers sleep: spinning ones slow whoever shares the machine
        "RES_OPTIONS": "timeout:1 attempts:1",  # a dead DNS server would stall gloo by 10 s a look-up
        "TORCH_GLOO_LAZY_INIT": "0",  # a peer's death before first use would hang
    }
    if interface:
        kept["GLOO_SOCKET_IFNAME"] = interface
    return kept
