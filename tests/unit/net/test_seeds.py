"""How the list of seeds is read."""

from __future__ import annotations

import pytest

from daisychain.errors import ConfigError
from daisychain.net.discovery.seeds import SEEDS_MAX, Seed, parse_seeds


def test_hosts_ports_and_brackets_are_read() -> None:
    assert parse_seeds(" 10.0.0.5, oldbox.lan:9000 ;[fd00::1]:7000,fd00::2 , 10.0.0.5", 7447) == (
        Seed("10.0.0.5", 7447, numeric=True),
        Seed("oldbox.lan", 9000, numeric=False),
        Seed("fd00::1", 7000, numeric=True),
        Seed("fd00::2", 7447, numeric=True),
    )
    assert parse_seeds("", 7447) == parse_seeds(" , ", 7447) == ()


@pytest.mark.parametrize(
    "entry",
    [
        *(
            "10.0.0.5:0",
            "10.0.0.5:65536",
            "10.0.0.5:",
            "box:port",
            "[fd00::1",
            "[fd00::1]7000",
            "-box",
            "a b",
        ),
        *("10.0.0.256", "1.2.3", "http://box", "box..lan", "x" * 64, "bo\u00d7", "box:\u0661"),
    ],
)
def test_a_wrong_entry_is_refused_by_name(entry: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_seeds(f"10.0.0.1, {entry}", 7447)
    assert repr(entry) in str(refused.value)


def test_a_list_that_would_scan_a_network_is_refused() -> None:
    with pytest.raises(ConfigError, match="too many"):
        parse_seeds(",".join(f"10.0.{i}.1" for i in range(SEEDS_MAX + 1)), 7447)
