"""The state folder: what a node must remember over restarts, and the lock that one agent holds on it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from daisychain.core.ids import NodeId, Term
from daisychain.errors import StorageError
from daisychain.host.locks import lock_file
from daisychain.host.run_folders import RunFolders
from daisychain.host.storage import make_folder, read_bounded, remove_scratch, set_aside, write_atomically

RECORD_MAX_BYTES = 4096
"""Largest record accepted: a real one is under 300 bytes."""

SOCKET_PATH_MAX_BYTES = 100
"""Longest path that every platform takes for a Unix socket (104 on macOS, 108 on Linux)."""


class _Record(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What one node must never forget, in one file so that its parts cannot disagree."""

    node_id: str
    term: Term
    incarnation: int


class StateFolder:
    """One node's own folder (mode 0700), locked by the one agent that uses it.

    Layout: ``daisychain.yaml`` (configuration), ``cluster.key``, ``identity/`` (certificate and node
    key), ``record.json`` (term, incarnation), ``ledger.json`` (runs), ``runs/<run id>/`` (each run's
    log, journal and checkpoints), ``cache/`` (converted data, the trainer's), ``incoming/`` (what is
    being fetched), ``fetched.json`` (what was), ``results.json`` (results as they came),
    ``agent.log``, ``agent.sock``, ``lock``.
    """

    def __init__(self, path: Path) -> None:
        """Make the folder when it is missing; raises `StorageError`."""
        self.path = path
        make_folder(path)
        self._lock: int | None = None

    @property
    def identity(self) -> Path:
        """Where the node's key and certificate are."""
        return self.path / "identity"

    @property
    def record(self) -> Path:
        """The file of the node's term and incarnation."""
        return self.path / "record.json"

    @property
    def ledger(self) -> Path:
        """The job ledger's file."""
        return self.path / "ledger.json"

    @property
    def runs(self) -> RunFolders:
        """The folders of runs."""
        return RunFolders(self.path / "runs")

    @property
    def cache(self) -> Path:
        """Where trainers keep converted data, made when missing; they fill it and keep it within its budget.

        Raises `StorageError`.
        """
        folder = self.path / "cache"
        make_folder(folder)
        return folder

    @property
    def incoming(self) -> Path:
        """Where the chunks of what is fetched lie until it is whole."""
        return self.path / "incoming"

    @property
    def fetched(self) -> Path:
        """The record of the job folders that are fetched copies."""
        return self.path / "fetched.json"

    @property
    def results(self) -> Path:
        """The record of results as they came to be."""
        return self.path / "results.json"

    @property
    def log(self) -> Path:
        """The agent's own log."""
        return self.path / "agent.log"

    @property
    def socket(self) -> Path:
        """The Unix socket on which the CLI reaches the agent."""
        return socket_of(self.path)

    def lock(self) -> None:
        """Take the folder for this process; raises `StorageError` when another agent has it.

        The kernel frees the lock with the process, however it ends.
        """
        path = self.path / "lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageError(
                f"{path} cannot be opened: {error.strerror}", "Choose another state folder."
            ) from error
        try:
            lock_file(descriptor)
        except OSError:
            owner = os.read(descriptor, 32).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise StorageError(
                f"another agent (process {owner or 'unknown'}) uses the state folder {self.path}",
                "Stop that one, or give this one its own folder with --state-folder.",
            ) from None
        with contextlib.suppress(
            OSError
        ):  # on a full disk nobody learns who holds it; it is held all the same
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._lock = descriptor
        for ours in (self.record, self.ledger, self.fetched, self.results):
            remove_scratch(ours)  # of a life that was killed as it wrote

    def unlock(self) -> None:
        """Give the folder up."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class NodeRecord:
    """The node's persisted term and incarnation.

    They belong to one node id. When the record is damaged, or missing although an identity is there, the
    node cannot know in which terms it led; ``NodeRecord.open`` then says so, and the caller gives the node
    a new id: a term is (number, node id), so a new id can never lead twice in one term.
    """

    def __init__(self, path: Path, record: _Record) -> None:
        self._path = path
        self._record = record

    @classmethod
    def open(cls, folder: StateFolder, node_id: NodeId) -> NodeRecord | str:
        """Return the record of ``node_id``, or why it cannot be trusted. Raises `StorageError`."""
        path = folder.record
        try:
            data = read_bounded(path, RECORD_MAX_BYTES)
            if data is None:
                return f"{path} is missing"
            record = msgspec.json.decode(data, type=_Record)
        except (StorageError, msgspec.DecodeError, UnicodeDecodeError) as error:
            return f"{path} is damaged ({error}) and is kept as {set_aside(path)}"
        if record.node_id != node_id:
            return f"{path} belongs to another node id ({record.node_id[:8]})"
        if record.term.number < 0 or record.incarnation < 1:
            return f"{path} has a negative term or incarnation and is kept as {set_aside(path)}"
        return cls(path, record)

    @classmethod
    def begin(cls, folder: StateFolder, node_id: NodeId) -> NodeRecord:
        """Make the record of a new node id: term 0, incarnation 1. Raises `StorageError`."""
        record = cls(folder.record, _Record(node_id, Term(0, node_id), 1))
        record._write()
        return record

    @property
    def term(self) -> Term:
        """The highest term that this node has taken part in."""
        return self._record.term

    @property
    def incarnation(self) -> int:
        """The incarnation last used."""
        return self._record.incarnation

    def save_term(self, term: Term) -> None:
        """Make ``term`` durable; a lower one than the recorded is refused. Raises `StorageError`."""
        if term < self._record.term:
            raise StorageError(f"term {term} is below the recorded {self._record.term}: a term never falls")
        if term != self._record.term:
            self._record = msgspec.structs.replace(self._record, term=term)
            self._write()

    def save_incarnation(self, incarnation: int) -> None:
        """Make ``incarnation`` durable; it never falls. Raises `StorageError`."""
        if incarnation > self._record.incarnation:
            self._record = msgspec.structs.replace(self._record, incarnation=incarnation)
            self._write()

    def _write(self) -> None:
        write_atomically(self._path, msgspec.json.encode(self._record))


def socket_of(state_folder: Path) -> Path:
    """Return the path of the agent's Unix socket; raises `StorageError` when it would be too long."""
    path = state_folder / "agent.sock"
    if len(os.fsencode(path.absolute())) > SOCKET_PATH_MAX_BYTES:
        raise StorageError(
            f"the state folder's path {state_folder} is too long for a Unix socket",
            f"Choose one that leaves {path.name} within {SOCKET_PATH_MAX_BYTES} bytes.",
        )
    return path
