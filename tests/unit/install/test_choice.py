"""What is installed on every kind of machine, and why."""

from __future__ import annotations

import itertools

import pytest

from daisychain.errors import ConfigError
from daisychain.install.choice import Choice, Way, Wishes, choose
from daisychain.install.facts import read_facts
from daisychain.install.variant import Cuda, Variant
from unit.install.machines import FERMI, GTX_970, K80, OLD_DRIVER, RTX_5090, RTX_5090_OLD, machine

CARDS = {  # what is computed on, where Docker gives containers a card
    (): ("cpu", None),
    (GTX_970,): ("cuda", "cu126"),
    (K80,): ("cpu", None),
    (FERMI,): ("cpu", None),
    (OLD_DRIVER,): ("cpu", None),
    (RTX_5090,): ("cuda", "cu130"),
    (RTX_5090_OLD,): ("cpu", None),
    (K80, GTX_970): ("cuda", "cu126"),
}
WAYS = {"absent": "lan", "down": "lan", "logged-out": "lan", "userspace": "lan", "up": "host-tailnet"}
PLACES = [  # system, Docker Desktop
    ("linux", False),
    ("linux", True),
    ("wsl", False),
    ("wsl", True),
    ("macos", True),
    ("windows", True),
]


def chosen(facts: str, wishes: Wishes | None = None, before: dict[str, str] | None = None) -> Choice:
    return choose(read_facts(facts), wishes or Wishes(), before or {})


@pytest.mark.parametrize(("system", "desktop"), PLACES)
def test_every_combination_of_network_and_card(system: str, desktop: bool) -> None:
    for gpus, toolkit, tailscale in itertools.product(CARDS, (False, True), WAYS):
        choice = chosen(machine(system, desktop, gpus, toolkit, tailscale))
        way = WAYS[tailscale] if (system, desktop) == ("linux", False) else "tailnet"
        gets_cards = {True: system in ("wsl", "windows"), False: toolkit}[desktop]
        # Windows numbers its drivers otherwise, but these cards fall on the same side of both limits
        variant, cuda = CARDS[gpus] if gets_cards else ("cpu", None)
        assert (choice.way, choice.variant, choice.cuda) == (way, variant, cuda), (gpus, toolkit, tailscale)
        assert len(choice.reasons) == 2 and all(reason.count(": ") for reason in choice.reasons)


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        (machine(), "variant cpu: no NVIDIA driver is installed"),
        (machine(gpus=(K80,), toolkit=True), "driver 470.82.1 is older than 525.60"),
        (machine(gpus=(FERMI,), toolkit=True), "compute capability 2.1 is below 5.0"),
        (machine(gpus=(RTX_5090_OLD,), toolkit=True), "driver 572.16 is older than 580"),
        (machine("wsl", True, ("X, 1024, 528.32, 8.6",)), "driver 528.32 is older than 528.33"),
        (machine(gpus=(GTX_970,)), "install the NVIDIA Container Toolkit"),
        (
            machine(gpus=(GTX_970,), toolkit=True, more="machine=aarch64"),
            "for x86-64, this machine is aarch64",
        ),
        (machine(more="gpu_trouble=nvidia-smi failed: no device"), "nvidia-smi failed: no device"),
        (machine(gpus=(K80, GTX_970), toolkit=True), "GTX 970 (4096 MiB, capability 5.2); Tesla K80: driver"),
        (machine("macos", True), "macOS gives containers no graphics card"),
        (machine("windows", True), "network tailnet: Docker Desktop keeps containers in a virtual machine"),
        (machine("wsl"), "network tailnet: Docker on Windows (WSL) keeps"),
        (machine(tailscale="logged-out"), "Tailscale is not up"),
        (machine(tailscale="down"), "failed to connect to local tailscaled"),
        (machine(tailscale="up"), "on a tailnet already"),
    ],
)
def test_every_choice_has_its_reason(facts: str, told: str) -> None:
    assert told in "\n".join(chosen(facts).reasons)


@pytest.mark.parametrize(
    ("facts", "wishes", "told"),
    [
        (machine(more="docker="), Wishes(), "Docker is not there"),
        (machine(more="docker=19.03.15"), Wishes(), "Docker 19.3.15 is older than 20.10"),
        (machine(more="compose="), Wishes(), "compose plugin is not there"),
        (machine(more="compose=1.29.2"), Wishes(), "compose plugin 1.29.2 is older than 2.20"),
        (machine("macos", True), Wishes(way=Way.LAN), "--network lan cannot work here: Docker Desktop"),
        (machine("wsl", tailscale="up"), Wishes(way=Way.HOST_TAILNET), "cannot work here: Docker on Windows"),
        (machine(), Wishes(way=Way.HOST_TAILNET), "Tailscale is not installed"),
        (machine(tailscale="logged-out"), Wishes(way=Way.HOST_TAILNET), "Tailscale is not up"),
        (machine(tailscale="userspace"), Wishes(way=Way.HOST_TAILNET), "userspace mode"),
        (machine(gpus=(K80,), toolkit=True), Wishes(variant=Variant.CUDA), "--variant cuda cannot work here"),
        (machine(gpus=(GTX_970,)), Wishes(variant=Variant.CUDA), "NVIDIA Container Toolkit"),
        (machine(), Wishes(name="a'b"), "--name"),
        (machine(), Wishes(name="x" * 65), "--name"),
        ("os=Plan9", Wishes(), "no known system"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(facts: str, wishes: Wishes, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        chosen(facts, wishes)
    assert told in refused.value.message + refused.value.remedy
    assert refused.value.remedy


def test_a_wish_wins_where_it_can_work() -> None:
    facts = machine(gpus=(GTX_970,), toolkit=True, tailscale="up")
    choice = chosen(facts, Wishes(Way.TAILNET, Variant.CPU, "loft"))
    assert (choice.way, choice.variant, choice.cuda, choice.name) == (Way.TAILNET, Variant.CPU, None, "loft")


def test_what_was_chosen_before_stays_and_the_difference_is_told() -> None:
    facts = machine(gpus=(GTX_970,), toolkit=True, tailscale="up")
    before = {
        "COMPOSE_FILE": "compose.yaml:compose/key.yaml",
        "DAISYCHAIN_VARIANT": "cpu",
        "DAISYCHAIN_NAME": "loft",
    }
    choice = chosen(facts, before=before)
    assert (choice.way, choice.variant, choice.name) == (Way.LAN, Variant.CPU, "loft")
    told = "\n".join(choice.reasons)
    assert "--network host-tailnet changes it" in told and "--variant cuda changes it" in told
    kept = {
        "COMPOSE_FILE": "compose.yaml:compose/tailnet.yaml",
        "DAISYCHAIN_VARIANT": "cuda",
        "DAISYCHAIN_CUDA": "cu130",
    }
    choice = chosen(machine(), before=kept)
    assert (choice.way, choice.variant, choice.cuda) == (Way.TAILNET, Variant.CUDA, Cuda.CU130)


def test_jobs_of_root_are_left_to_the_images_user() -> None:
    assert (chosen(machine()).uid, chosen(machine()).gid) == (1000, 1001)
    assert chosen(machine(more="uid=0\ngid=0")).uid is None
    assert chosen(machine("windows", True)).uid is None


def test_facts_that_nobody_asked_for_are_passed_over() -> None:
    assert chosen(machine(more="\x00nonsense\nfuture_fact=1\ntailscale=no JSON at all")).way is Way.LAN
