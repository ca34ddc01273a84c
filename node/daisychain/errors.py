"""Every error that DaisyChain raises on purpose.

    DaisyChainError          what happened, the values, and what to do
    ├── ConfigError          the node's configuration, a flag or an environment variable is wrong
    ├── IdentityError        the cluster key, a certificate or the node's own identity is unusable
    ├── ProtocolError        bytes from a peer or the trainer that no honest sender would send
    ├── NetworkError         no usable interface, no route, the tailnet is not up
    ├── StorageError         the state folder or a file in it cannot be read or written
    ├── JobError             job.yaml, its data or the user's code cannot be trained
    │   ├── JobMemoryError   not on this machine: it wants more memory than there is
    │   └── BundleError      files that no node may hold, or that are not what they were said to be
    ├── WorldError           a process group could not be formed, or broke; the next generation mends it
    └── AgentError           the CLI cannot reach the local agent, or the agent refused

Each reaches the user as one line with its remedy and an exit code (see cli/exits.py). A `WorldError` does so
only in `daisychain run`: in a chain the trainer reports it and waits for the next plan.
"""

from __future__ import annotations


class DaisyChainError(Exception):
    """Something went wrong that a person can act upon.

    Attributes:
        message: what happened, with the values that show it.
        remedy: what to do about it; empty when there is nothing to do.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message if not remedy else f"{message}. {remedy}")
        self.message = message
        self.remedy = remedy


class ConfigError(DaisyChainError):
    """The configuration, a flag or an environment variable is wrong."""


class IdentityError(DaisyChainError):
    """The cluster key, a certificate or the node's own identity is unusable."""


class ProtocolError(DaisyChainError):
    """Bytes from a peer or a trainer that no honest sender would send."""


class NetworkError(DaisyChainError):
    """No usable interface or route, or the tailnet is not up."""


class StorageError(DaisyChainError):
    """The state folder, or a file in it, cannot be read or written."""


class JobError(DaisyChainError):
    """A job that cannot be trained as it stands.

    Attributes:
        where: the file, with the key or line where there is one, e.g. ``job.yaml: epochs``
            or ``model.py:12``.
    """

    def __init__(self, where: str, message: str, remedy: str = "") -> None:
        super().__init__(f"{where}: {message}", remedy)
        self.where = where


class JobMemoryError(JobError):
    """A job that wants more memory than this machine has: on a larger one it may do."""


class BundleError(JobError):
    """Files of a job or a result that no node may hold, or that are not what they were said to be.

    ``where`` is the file, as a message may show it.
    """


class WorldError(DaisyChainError):
    """A process group could not be formed, or broke while in use."""


class AgentError(DaisyChainError):
    """The local agent cannot be reached, or refused what was asked."""
