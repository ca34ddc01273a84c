"""The lines that bring another machine into the chain."""

from __future__ import annotations

from daisychain.install.invitation import in_our_image, invitation

KEY = "ABCDE-FGHIJ"


def test_a_node_in_a_container_is_joined_by_the_installer() -> None:
    lines = "\n".join(invitation(KEY, container=True))
    assert f"scripts/install.sh --key {KEY} && docker compose up --detach" in lines
    assert f"scripts\\install.ps1 --key {KEY}" in lines
    assert "daisychain key join" not in lines  # there is no such command outside the container


def test_a_node_without_one_is_joined_by_the_command_line() -> None:
    lines = invitation(KEY, container=False)
    assert f"  daisychain key join {KEY}" in lines and "docker" not in "\n".join(lines)


def test_the_tests_run_in_no_image_of_ours() -> None:
    assert not in_our_image()
