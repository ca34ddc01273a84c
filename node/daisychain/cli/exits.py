"""Exit codes: one for each kind of error, so that a script can tell them apart. See docs/CLI.md."""

from __future__ import annotations

from enum import IntEnum

from daisychain.errors import (
    AgentError,
    ConfigError,
    DaisyChainError,
    IdentityError,
    JobError,
    NetworkError,
    ProtocolError,
    StorageError,
    WorldError,
)


class Exit(IntEnum):
    """What a command's exit code means."""

    OK = 0
    INTERNAL = 1  # a bug: a traceback was printed
    USAGE = 2  # an unknown command or option
    CONFIG = 3  # the configuration, a flag or a variable is wrong
    IDENTITY = 4  # the cluster key or the node's identity is unusable
    NETWORK = 5  # no usable interface, or the port is taken
    STORAGE = 6  # the state or jobs folder cannot be used
    JOB = 7  # the job cannot be trained, or failed
    AGENT = 8  # the agent is not running, or refused
    WORLD = 9  # the trainer ended unexpectedly
    PROTOCOL = 10  # something answered that is no DaisyChain agent
    DOCTOR = 11  # doctor found a problem
    DEMO = 12  # the demo did not show what it should
    INTERRUPTED = 130  # Ctrl-C


_KINDS: tuple[tuple[type[DaisyChainError], Exit], ...] = (
    (ConfigError, Exit.CONFIG),
    (IdentityError, Exit.IDENTITY),
    (NetworkError, Exit.NETWORK),
    (StorageError, Exit.STORAGE),
    (JobError, Exit.JOB),
    (AgentError, Exit.AGENT),
    (WorldError, Exit.WORLD),
    (ProtocolError, Exit.PROTOCOL),
)


def exit_code(error: DaisyChainError) -> Exit:
    """Return the exit code of this kind of error."""
    return next((code for kind, code in _KINDS if isinstance(error, kind)), Exit.INTERNAL)
