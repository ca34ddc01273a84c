"""`.env` says what was chosen and keeps everything else."""

from __future__ import annotations

from daisychain.install.choice import Wishes, choose
from daisychain.install.env_file import merge, read_env, variables
from daisychain.install.facts import read_facts
from daisychain.install.variant import Variant
from unit.install.machines import GTX_970, RTX_5090, machine


def written(facts: str, text: str = "", wishes: Wishes | None = None) -> str:
    before = read_env(text)
    return merge(text, variables(choose(read_facts(facts), wishes or Wishes(), before), before))


def test_a_new_file_says_what_was_chosen() -> None:
    assert read_env(written(machine(gpus=(RTX_5090,), toolkit=True, tailscale="up"))) == {
        "COMPOSE_PATH_SEPARATOR": ":",
        "COMPOSE_FILE": "compose.yaml:compose/host-tailnet.yaml:compose/cuda.yaml:compose/key.yaml",
        "DAISYCHAIN_NAME": "attic",
        "DAISYCHAIN_NETWORK": "tailnet",
        "DAISYCHAIN_VARIANT": "cuda",
        "DAISYCHAIN_CUDA": "cu130",
        "DAISYCHAIN_KEY": "./secrets/cluster.key",
        "DAISYCHAIN_UID": "1000",
        "DAISYCHAIN_GID": "1001",
    }
    lan = read_env(written(machine()))
    assert lan["COMPOSE_FILE"] == "compose.yaml:compose/key.yaml" and lan["DAISYCHAIN_NETWORK"] == "lan"
    assert "DAISYCHAIN_CUDA" not in lan


def test_run_again_changes_nothing() -> None:
    first = written(machine(gpus=(GTX_970,), toolkit=True))
    edited = (
        first.replace("DAISYCHAIN_NAME=attic", 'DAISYCHAIN_NAME="my loft"') + "# mine\nTS_AUTHKEY=tskey\n"
    )
    for facts in (
        machine(gpus=(GTX_970,), toolkit=True),
        machine(tailscale="up", more="host_name=other\nuid=7"),
    ):
        assert written(facts, edited) == edited


def test_only_what_was_asked_changes() -> None:
    first = written(machine(gpus=(GTX_970,), toolkit=True)) + "COMPOSE_PROFILES=mine\n"
    mine = first.replace("compose/key.yaml\n", "compose/key.yaml:my.yaml\n")
    changed = written(machine(gpus=(GTX_970,), toolkit=True), mine, Wishes(variant=Variant.CPU, name="a b"))
    wanted = read_env(mine) | {
        "COMPOSE_FILE": "compose.yaml:compose/key.yaml:my.yaml",
        "DAISYCHAIN_VARIANT": "cpu",
        "DAISYCHAIN_NAME": "a b",
    }
    del wanted["DAISYCHAIN_CUDA"]
    assert read_env(changed) == wanted
