"""Flags over environment over file over defaults; what is wrong is named with where it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from daisychain.config import DEFAULT_PORT, NodeConfig, default_state_folder, load_config
from daisychain.errors import ConfigError
from daisychain.net.interface_choice import Network


def load(
    tmp_path: Path, file: str = "", environ: dict[str, str] | None = None, **flags: object
) -> NodeConfig:
    (tmp_path / "daisychain.yaml").write_text(file)
    return load_config({"state_folder": tmp_path, **flags}, environ or {})


def test_defaults(tmp_path: Path) -> None:
    config = load(tmp_path)
    assert (config.port, config.network, config.mdns, config.seeds) == (DEFAULT_PORT, Network.AUTO, True, ())
    assert config.key_path == tmp_path / "cluster.key"
    assert config.name
    assert config.jobs_folder.is_absolute()


def test_each_layer_wins_over_the_next(tmp_path: Path) -> None:
    file = "port: 1\nname: file\nmin_nodes: 3\nseeds: [10.0.0.1, '10.0.0.2:99']\n"
    environ = {"DAISYCHAIN_PORT": "2", "DAISYCHAIN_NAME": "environment", "DAISYCHAIN_INTERFACE": ""}
    config = load(tmp_path, file, environ, port=3, interface=None)
    assert (config.port, config.name, config.min_nodes) == (3, "environment", 3)
    assert config.interface is None
    assert [str(seed) for seed in config.parsed_seeds] == ["10.0.0.1:3", "10.0.0.2:99"]


def test_the_state_folder_comes_from_flag_then_environment_then_home(tmp_path: Path) -> None:
    environ = {"DAISYCHAIN_STATE_FOLDER": str(tmp_path / "env"), "HOME": str(tmp_path)}
    assert load_config({}, environ).state_folder == tmp_path / "env"
    assert load_config({"state_folder": tmp_path / "flag"}, environ).state_folder == tmp_path / "flag"
    assert load_config({}, {"HOME": str(tmp_path)}).state_folder == tmp_path / ".daisychain"
    assert default_state_folder({"HOME": str(tmp_path)}) == tmp_path / ".daisychain"


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("prot: 1\n", ("daisychain.yaml", "prot", "no such key")),
        ("port: 70000\n", ("daisychain.yaml", "port", "70000", "65535")),
        ("port: '7'\n", ("daisychain.yaml", "port", "port number")),
        ("port: true\n", ("daisychain.yaml", "port")),
        ("network: moon\n", ("daisychain.yaml", "network", "tailnet")),
        ("mdns: maybe\n", ("daisychain.yaml", "mdns", "true or false")),
        ("state_folder: /x\n", ("daisychain.yaml", "state_folder", "--state-folder")),
        ("- a\n", ("daisychain.yaml", "mapping")),
        ("a: [\n", ("daisychain.yaml:2", "no YAML")),
        ("log_level: loud\n", ("log_level", "debug")),
        ("name: ''\n", ("name", "printable")),
        ("x" * 70_000, ("daisychain.yaml", "65536")),
    ],
)
def test_a_wrong_file_is_refused_with_file_and_key(tmp_path: Path, file: str, names: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, file)
    assert all(name in str(caught.value) for name in names), caught.value


def test_wrong_variables_and_flags_are_named_as_they_were_given(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="DAISYCHAIN_PROT"):
        load(tmp_path, environ={"DAISYCHAIN_PROT": "1"})
    with pytest.raises(ConfigError, match="DAISYCHAIN_MIN_NODES: '0'"):
        load(tmp_path, environ={"DAISYCHAIN_MIN_NODES": "0"})
    with pytest.raises(ConfigError, match=r"the command line: --min-nodes: '99'"):
        load(tmp_path, min_nodes=99)


def test_a_wrong_seed_is_named(tmp_path: Path) -> None:
    config = load(tmp_path, environ={"DAISYCHAIN_SEEDS": "10.0.0.1, 10.0.0.2:banana"})
    with pytest.raises(ConfigError, match="banana"):
        config.discovery_settings()


def test_the_tailscale_socket_reaches_the_command(tmp_path: Path) -> None:
    settings = load(tmp_path, "tailscale_socket: /run/ts.sock\n").discovery_settings()
    assert settings.tailscale == ("tailscale", "--socket=/run/ts.sock")
