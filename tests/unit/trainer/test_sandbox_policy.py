"""What job code may touch, in folders as people lay them out; and the kernel's permissions for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from daisychain.trainer.sandbox.policy import ENTRIES_MAX, Access, Facts, Policy, Rule, make_policy
from daisychain.trainer.sandbox.rights import Right, handled, missing, rights_of, scopes

STATE, KEY, JOBS = "/home/ada/.daisychain", "/home/ada/.daisychain/cluster.key", "/home/ada/jobs"
FACTS = Facts(
    readable=("/usr", "/home/ada/venv"),
    importable=("/home/ada/venv/lib/python3.11/site-packages", f"{STATE}/runs/r"),
    devices=("/dev/null",),
    shared=("/dev/shm",),
    job_folder=f"{JOBS}/digits",
    run_folder=f"{STATE}/runs/r",
    cache_folder=None,
    hidden=(STATE, KEY, JOBS),
)
TREE = {
    "/home/ada": (STATE, JOBS, "/home/ada/venv", "/home/ada/lib", "/home/ada/a.py"),
    STATE: (KEY, f"{STATE}/identity", f"{STATE}/runs"),
    JOBS: (f"{JOBS}/digits", f"{JOBS}/other"),
    "/etc": ("/etc/hosts", "/etc/keys"),
    "/etc/keys": ("/etc/keys/cluster.key", "/etc/keys/readme"),
}


def entries(folder: str) -> Iterable[str]:
    return TREE.get(folder, ())


def allows(policy: Policy, path: str) -> set[Access]:
    """Return what the kernel would permit: the rules of the path and of all folders above it."""
    return {rule.access for rule in policy.rules if f"{path}/".startswith(f"{rule.path}/")}


def test_a_job_has_its_own_folders_the_system_and_nothing_else() -> None:
    policy = make_policy(FACTS, entries)
    assert policy.notes == ()
    assert Access.WRITE in allows(policy, f"{JOBS}/digits/result/model.safetensors")
    assert Access.WRITE in allows(policy, f"{STATE}/runs/r/metrics.jsonl")
    assert allows(policy, "/usr/lib/libc.so.6") == {Access.READ}
    assert allows(policy, "/dev/null") == {Access.DEVICE}
    assert allows(policy, "/dev/shm/torch_1") == {Access.WRITE}
    for forbidden in (
        KEY,
        f"{STATE}/identity/node.key",
        f"{STATE}/runs/other/state",
        f"{JOBS}/other/job.yaml",
        "/home/ada/.ssh/id_ed25519",
        "/etc/shadow",
        "/tmp/x",
        "/home/ada",
        "/",
    ):
        assert allows(policy, forbidden) == set(), forbidden


def test_converted_data_is_for_jobs_without_code_of_their_own() -> None:
    cache = f"{STATE}/cache"
    assert allows(make_policy(FACTS, entries), cache) == set()
    policy = make_policy(replace(FACTS, cache_folder=cache), entries)
    assert allows(policy, f"{cache}/houses") == {Access.WRITE}
    assert allows(policy, KEY) == set()


@pytest.mark.parametrize("at", ["readable", "importable"])
def test_what_is_hidden_below_a_readable_folder_stays_hidden(at: str) -> None:
    """PYTHONPATH=$HOME, or a prefix that holds the state folder too."""
    more = ("/home/ada",)
    facts = replace(FACTS, readable=more) if at == "readable" else replace(FACTS, importable=more)
    policy = make_policy(facts, entries)
    assert allows(policy, KEY) <= {Access.LIST}
    assert allows(policy, f"{JOBS}/other/job.yaml") <= {Access.LIST}
    assert Access.READ in allows(policy, "/home/ada/lib/mine/__init__.py")
    assert Access.READ in allows(policy, "/home/ada/a.py")
    assert (Access.LIST in allows(policy, "/home/ada")) == (at == "importable")
    assert bool(policy.notes) == (at == "importable"), "only what is seen is told"


def test_a_key_elsewhere_is_hidden_there() -> None:
    key = "/etc/keys/cluster.key"
    policy = make_policy(replace(FACTS, readable=("/usr", "/etc"), hidden=(STATE, key, JOBS)), entries)
    assert allows(policy, key) == set()
    assert allows(policy, "/etc/keys/readme") == allows(policy, "/etc/hosts") == {Access.READ}


def test_an_interpreter_inside_the_state_folder_is_readable_there_alone() -> None:
    policy = make_policy(replace(FACTS, readable=("/usr", f"{STATE}/venv")), entries)
    assert allows(policy, f"{STATE}/venv/bin/python") == {Access.READ}
    assert allows(policy, KEY) == set()


def test_imports_from_the_jobs_folder_itself_are_refused_and_told() -> None:
    policy = make_policy(replace(FACTS, importable=(JOBS,)), entries)
    assert allows(policy, f"{JOBS}/other/job.yaml") == set()
    assert [JOBS in note for note in policy.notes] == [True]


def test_a_state_folder_inside_the_job_is_told() -> None:
    policy = make_policy(replace(FACTS, job_folder="/home/ada"), entries)
    assert any(STATE in note and "job code can reach it" in note for note in policy.notes)


def test_a_huge_folder_around_something_hidden_is_hidden_whole() -> None:
    policy = make_policy(replace(FACTS, readable=("/home/ada",)), lambda _: map(str, range(ENTRIES_MAX + 1)))
    assert allows(policy, "/home/ada/lib") == set()
    assert any("hidden whole" in note for note in policy.notes)


def test_a_name_that_begins_alike_is_another_folder() -> None:
    policy = make_policy(replace(FACTS, readable=("/home/ada/.daisychain2",)), entries)
    assert Rule("/home/ada/.daisychain2", Access.READ) in policy.rules


@pytest.mark.parametrize("abi", range(1, 10))
def test_every_version_of_landlock_gets_what_it_knows(abi: int) -> None:
    known = 13 + (abi >= 2) + (abi >= 3) + (abi >= 5)
    assert handled(abi) == (1 << known) - 1 | (1 << 16 if abi >= 9 else 0)
    assert (scopes(abi) != 0) == (abi >= 6)
    for access in Access:
        for folder in (True, False):
            rights = rights_of(access, abi, folder)
            assert rights & ~handled(abi) == 0, (
                "the kernel refuses a rule with rights that it was not told of"
            )
            assert not rights & (Right.MAKE_BLOCK | Right.MAKE_CHAR)
            if not folder:
                assert not rights & (Right.READ_DIR | Right.MAKE_REG | Right.REFER)
    assert not rights_of(Access.READ, abi, True) & (Right.WRITE_FILE | Right.MAKE_REG | Right.REMOVE_FILE)
    assert rights_of(Access.LIST, abi, True) == Right.READ_DIR


def test_what_a_kernel_leaves_open_is_said() -> None:
    assert "no Landlock" in missing(0)[0]
    assert [len(missing(abi)) for abi in (1, 2, 3, 5, 6, 8, 9)] == [3, 3, 2, 2, 1, 1, 0]
