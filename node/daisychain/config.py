"""The node's typed configuration: the only reader of the environment.

Flags win over the environment (``DAISYCHAIN_*``), which wins over ``daisychain.yaml`` in the state
folder, which wins over the defaults; an empty variable counts as not set. Each part's settings stand
beside that part; they are built here.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from daisychain.core.orders import CHECKPOINT_EVERY_S
from daisychain.core.settings import CoreSettings
from daisychain.errors import ConfigError
from daisychain.host.hardware import Hardware, trainer_memory_bytes
from daisychain.net.discovery.discovery import DiscoverySettings
from daisychain.net.discovery.seeds import Seed, parse_seeds
from daisychain.net.interface_choice import Network
from daisychain.runtime.supervisor import SupervisorSettings

CONFIG_FILE = "daisychain.yaml"
CONFIG_MAX_BYTES = 1 << 16
PREFIX = "DAISYCHAIN_"
DEFAULT_PORT = 7447
NAME_MAX = 64
LOG_LEVELS = ("debug", "info", "warning", "error")


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a person can set, checked.

    Attributes:
        state_folder: the node's own folder; not in the file, which lies in it.
        jobs_folder: where jobs are dropped.
        name: of this node, for people.
        interface: the network interface or one of its IPv4 addresses; None = chosen.
        network: ``auto``, ``lan``, ``tailnet`` or ``loopback``.
        port: of the control port; 0 = any free one.
        seeds: addresses where nodes may be, as host or host:port.
        key_file: the cluster key; None = ``cluster.key`` in the state folder.
        mdns: whether to look for nodes on the LAN.
        tailnet: whether to ask Tailscale for nodes.
        tailscale: Tailscale's command.
        tailscale_socket: of Tailscale's daemon; None = its own default.
        min_nodes: the first world of every job waits for this many nodes.
        checkpoint_every_s: seconds between two checkpoints of a small state.
        memory_max_bytes: most that a trainer's process may allocate; None = see `trainer_memory_bytes`.
        cache_max_bytes: most bytes of converted data in ``cache/``; None = half of the disk's free space.
        fetched_max_bytes: most disk that jobs fetched from other nodes may take; None = a tenth of it.
        threads: CPU threads of a trainer; None = as many as the node may use.
        log_level: ``debug``, ``info``, ``warning`` or ``error``.
    """

    state_folder: Path
    jobs_folder: Path = Path("jobs")
    name: str = ""
    interface: str | None = None
    network: Network = Network.AUTO
    port: int = DEFAULT_PORT
    seeds: tuple[str, ...] = ()
    key_file: Path | None = None
    mdns: bool = True
    tailnet: bool = True
    tailscale: Path = Path("tailscale")
    tailscale_socket: Path | None = None
    min_nodes: int = 1
    checkpoint_every_s: float = CHECKPOINT_EVERY_S
    cache_max_bytes: int | None = None
    memory_max_bytes: int | None = None
    fetched_max_bytes: int | None = None
    threads: int | None = None
    log_level: str = "info"

    @property
    def key_path(self) -> Path:
        """Where the cluster key is."""
        return self.key_file if self.key_file is not None else self.state_folder / "cluster.key"

    @property
    def parsed_seeds(self) -> tuple[Seed, ...]:
        """The seeds as addresses; raises `ConfigError` naming the wrong one."""
        return parse_seeds(",".join(self.seeds), self.port or DEFAULT_PORT)

    def core_settings(self) -> CoreSettings:
        """Return the settings of the core."""
        return CoreSettings()

    def discovery_settings(self) -> DiscoverySettings:
        """Return the settings of discovery."""
        command: tuple[str, ...] = (str(self.tailscale),)
        if self.tailscale_socket is not None:
            command += (f"--socket={self.tailscale_socket}",)
        return DiscoverySettings(
            mdns=self.mdns,
            tailnet=self.tailnet,
            seeds=self.parsed_seeds,
            control_port=self.port or DEFAULT_PORT,
            tailscale=command,
        )

    def supervisor_settings(self, interface: str, facts: Hardware) -> SupervisorSettings:
        """Return the settings of the trainer's supervisor on a machine of these facts."""
        return SupervisorSettings(
            interface=interface,
            threads=self.threads or facts.cores,
            memory_max_bytes=self.memory_max_bytes or trainer_memory_bytes(facts.memory_bytes),
            hidden=(self.state_folder, self.key_path.absolute(), self.jobs_folder),
        )


def default_state_folder(environ: Mapping[str, str]) -> Path:
    """Return where a node keeps its state unless told otherwise."""
    return Path(environ.get("HOME") or Path.home()) / ".daisychain"


def load_config(flags: Mapping[str, object], environ: Mapping[str, str] | None = None) -> NodeConfig:
    """Return the configuration. ``flags``: what was given on the command line; None = not given.

    Raises `ConfigError` naming the file, variable or flag, the key and what was expected.
    """
    environ = os.environ if environ is None else environ
    given = {key: value for key, value in flags.items() if value is not None}
    fields = {field.name for field in msgspec.structs.fields(NodeConfig)}
    variables = {name: name.removeprefix(PREFIX).lower() for name in environ if name.startswith(PREFIX)}
    for variable, key in variables.items():
        if key not in fields:
            raise ConfigError(f"the environment variable {variable} means nothing", _known(fields, PREFIX))
    from_environment = {key: environ[variable] for variable, key in variables.items() if environ[variable]}
    state = given.get("state_folder") or from_environment.get("state_folder")
    folder = Path(str(state)) if state else default_state_folder(environ)
    file = folder / CONFIG_FILE
    layers = [
        (str(file), "", _read_file(file, fields)),
        ("the environment", PREFIX, from_environment),
        ("the command line", "--", given),
    ]
    values: dict[str, Any] = {}
    for where, prefix, layer in layers:
        for key, value in layer.items():
            values[key] = _checked(key, value, where, prefix)
    values["state_folder"] = folder.absolute()
    config = NodeConfig(**values)
    name = config.name or socket.gethostname()[:NAME_MAX] or "node"
    return msgspec.structs.replace(config, name=name, jobs_folder=config.jobs_folder.absolute())


def _read_file(path: Path, fields: set[str]) -> dict[str, Any]:
    """Return the entries of daisychain.yaml; an absent file has none."""
    try:
        with path.open("rb") as file:
            data = file.read(CONFIG_MAX_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", "Check its permissions") from error
    if len(data) > CONFIG_MAX_BYTES:
        raise ConfigError(f"{path} is over {CONFIG_MAX_BYTES} bytes", "It is no configuration")
    try:
        content = yaml.safe_load(data)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        place = getattr(error, "problem_mark", None)
        line = f":{place.line + 1}" if place is not None else ""
        raise ConfigError(f"{path}{line}: it is no YAML", "Write lines of the form `key: value`") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: it is no mapping", "Write lines of the form `key: value`")
    for key in content:
        if key == "state_folder":
            raise ConfigError(
                f"{path}: state_folder: the file lies in that folder, so it cannot name another",
                "Use --state-folder or DAISYCHAIN_STATE_FOLDER",
            )
        if key not in fields:
            raise ConfigError(f"{path}: {str(key)[:40]}: no such key", _known(fields - {"state_folder"}, ""))
    return content


_TYPES = {field.name: field.type for field in msgspec.structs.fields(NodeConfig)}
_EXPECTED = {
    "network": "auto, lan, tailnet or loopback",
    "port": "a port number from 0 (any free one) to 65535",
    "seeds": "addresses parted by commas, or a list of them",
    "mdns": "true or false",
    "tailnet": "true or false",
    "min_nodes": "a whole number from 1 to 64",
    "checkpoint_every_s": "seconds from 1 to 86400",
    "memory_max_bytes": "a whole number of bytes from 268435456 (256 MiB)",
    "cache_max_bytes": "a whole number of bytes from 1",
    "fetched_max_bytes": "a whole number of bytes, 0 for none",
    "threads": "a whole number from 1 to 1024",
    "log_level": ", ".join(LOG_LEVELS),
    "name": f"1 to {NAME_MAX} printable characters",
}
_CHECKS: dict[str, Callable[[Any], bool]] = {
    "port": lambda value: 0 <= value <= 65535,
    "min_nodes": lambda value: 1 <= value <= 64,
    "checkpoint_every_s": lambda value: 1.0 <= value <= 86400.0,
    "memory_max_bytes": lambda value: value is None or 1 << 28 <= value < 1 << 62,
    "cache_max_bytes": lambda value: value is None or 1 <= value < 1 << 62,
    "fetched_max_bytes": lambda value: value is None or value >= 0,
    "threads": lambda value: value is None or 1 <= value <= 1024,
    "log_level": lambda value: value in LOG_LEVELS,
    "name": lambda value: 0 < len(value) <= NAME_MAX and value.isprintable(),
}


def _checked(key: str, value: object, where: str, prefix: str) -> Any:
    """Return ``value`` in the type of ``key``, or raise `ConfigError`."""
    named = {"": key, PREFIX: f"{PREFIX}{key.upper()}", "--": f"--{key.replace('_', '-')}"}[prefix]
    if key == "seeds" and isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, Path):
        value = str(value)
    try:
        checked = msgspec.convert(value, _TYPES[key], strict=prefix == "", dec_hook=_path)
    except msgspec.ValidationError:
        checked, fits = None, False
    else:
        fits = key not in _CHECKS or _CHECKS[key](checked)
    if not fits:
        expected = _EXPECTED.get(key, "a text")
        raise ConfigError(f"{where}: {named}: {str(value)[:60]!r} does not fit", f"Expected {expected}")
    return checked.expanduser() if isinstance(checked, Path) else checked


def _path(kind: type, value: object) -> Path:
    """Make the one type that msgspec does not know."""
    if kind is Path and isinstance(value, str) and value:
        return Path(value)
    raise ValueError(f"no {kind.__name__}")


def _known(fields: set[str], prefix: str) -> str:
    names = [f"{prefix}{field.upper()}" if prefix else field for field in sorted(fields)]
    return f"Known are {', '.join(names)}"
