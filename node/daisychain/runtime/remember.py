"""Who this node is, from its state folder; and what it does when it cannot know its own terms."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from daisychain.host.ledger import Ledger
from daisychain.host.state_folder import NodeRecord, StateFolder
from daisychain.net.identity.cluster_key import ClusterKey
from daisychain.net.identity.node_identity import NodeIdentity

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Remembered:
    """Who this node is. ``problems``: what was damaged and what was done about it."""

    state: StateFolder
    key: ClusterKey
    identity: NodeIdentity
    record: NodeRecord
    ledger: Ledger
    problems: tuple[str, ...]


def remember(state: StateFolder, key_path: Path) -> Remembered:
    """Load the identity, the record with its incarnation raised by one, the ledger and the cluster key.

    A node whose record is lost cannot know in which terms it led, so it takes a new id: a term is
    (number, node id), and a new id never leads twice in one. Raises `StorageError` and `IdentityError`.
    """
    problems: list[str] = []
    first = not (state.identity.is_dir() and any(state.identity.iterdir()))
    identity = NodeIdentity.load_or_create(state.path)
    record = NodeRecord.open(state, identity.node_id)
    if isinstance(record, str):
        if first:
            record = NodeRecord.begin(state, identity.node_id)
        else:
            problems.append(f"{record}; this node took a new id, so that it never leads twice in one term")
            identity, record = take_new_id(state)
    else:
        record.save_incarnation(record.incarnation + 1)
    ledger = Ledger(state.ledger)
    for card in ledger.cards():
        if card.state.ended:  # it may have died before it could tidy up
            state.runs.forget_checkpoints(card.run_id)
    if ledger.problem:
        problems.append(ledger.problem)
    for problem in problems:
        log.warning("%s", problem)
    return Remembered(state, ClusterKey.load(key_path), identity, record, ledger, tuple(problems))


def take_new_id(state: StateFolder) -> tuple[NodeIdentity, NodeRecord]:
    """Return a new identity and its fresh record, both on disk in place of the old ones.

    Cut short between the two, the next start finds a record of another id and takes a new one again.
    Raises `StorageError` and `IdentityError`.
    """
    identity = NodeIdentity.renew(state.path)
    return identity, NodeRecord.begin(state, identity.node_id)
