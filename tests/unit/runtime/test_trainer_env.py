"""No secret reaches the user's code, and what training needs does."""

from __future__ import annotations

from daisychain.runtime.trainer_env import trainer_environment

AGENT = {
    "PATH": "/bin",
    "HOME": "/home/me",
    "LC_ALL": "C.UTF-8",
    "NVIDIA_VISIBLE_DEVICES": "all",
    "DAISYCHAIN_KEY_FILE": "/secret",
    "DAISYCHAIN_ANYTHING": "x",
    "TS_AUTHKEY": "tskey-1",
    "AWS_SECRET_ACCESS_KEY": "x",
    "GITHUB_TOKEN": "x",
    "GLOO_SOCKET_IFNAME": "docker0",
}


def test_only_what_training_needs_is_handed_on() -> None:
    environment = trainer_environment(AGENT, "eth0", 4, "/runs/r/tmp")
    handed_on = {name for name in AGENT if environment.get(name) == AGENT[name]}
    assert handed_on == {"PATH", "HOME", "LC_ALL", "NVIDIA_VISIBLE_DEVICES"}


def test_gloo_binds_the_proven_interface_and_no_other() -> None:
    assert trainer_environment(AGENT, "eth0", 4, "/runs/r/tmp")["GLOO_SOCKET_IFNAME"] == "eth0"
    assert "GLOO_SOCKET_IFNAME" not in trainer_environment(AGENT, "", 4, "/runs/r/tmp")


def test_threads_and_hash_seed_are_set() -> None:
    environment = trainer_environment(AGENT, "eth0", 4, "/runs/r/tmp")
    assert environment["OMP_NUM_THREADS"] == "4"
    assert environment["PYTHONHASHSEED"] == "0"
    assert trainer_environment(AGENT, "eth0", 0, "/runs/r/tmp")["OMP_NUM_THREADS"] == "1"


def test_temporary_files_and_caches_are_the_runs_own() -> None:
    environment = trainer_environment({"TMPDIR": "/tmp", "XDG_CACHE_HOME": "/c"}, "", 1, "/runs/r/tmp")
    assert environment["TMPDIR"] == "/runs/r/tmp"
    assert environment["XDG_CACHE_HOME"] == "/runs/r/tmp/cache"
