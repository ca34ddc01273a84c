"""Everything that can happen to a node: the inputs of the machine."""

from __future__ import annotations

from dataclasses import dataclass

from daisychain.core.effects import Part
from daisychain.core.ids import Address, ClusterId, NodeId, RunId
from daisychain.core.jobs import JobCard
from daisychain.core.messages import Message
from daisychain.core.node import NodeInfo
from daisychain.core.reports import Report
from daisychain.core.results import NOTHING_BESIDE, FolderReport


@dataclass(frozen=True, slots=True)
class CandidateSeen:
    """Discovery found an address that may be a node; it is dialled, never trusted.

    Attributes:
        source: ``mdns``, ``tailnet``, ``seed`` or ``inbound`` (it dialled us).
        node_id, cluster_id: what it claims, where the source tells; None otherwise.
    """

    source: str
    address: Address
    node_id: NodeId | None = None
    cluster_id: ClusterId | None = None


@dataclass(frozen=True, slots=True)
class DialFailed:
    """A dial ended without a link.

    ``refused``: the machine answered that nobody listens there (the process is gone).
    ``ourselves``: the address turned out to be this node itself.
    """

    address: Address
    refused: bool
    reason: str
    ourselves: bool = False


@dataclass(frozen=True, slots=True)
class LinkUp:
    """Our own dial reached an authenticated node of this cluster, and it said Hello.

    A node sends only over links that it dialled itself, so both ways are proven before a peer is
    a member. ``address`` is what was dialled. ``local_host`` is our own address on that link.
    """

    info: NodeInfo
    address: Address
    local_host: str


@dataclass(frozen=True, slots=True)
class LinkDown:
    """A link that we dialled ended. ``reset``: by the other side or its kernel, not by silence."""

    node_id: NodeId
    reset: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Received:
    """An authenticated node sent us a message, over the link that it dialled."""

    node_id: NodeId
    message: Message


@dataclass(frozen=True, slots=True)
class InboundLost:
    """The link that the peer had dialled to us ended."""

    node_id: NodeId
    reset: bool


@dataclass(frozen=True, slots=True)
class JobsScanned:
    """What the jobs folder holds now: one card a job whose files are complete.

    Cards of runs whose result is already there come as ``FINISHED`` (or as the recorded end). ``beside``:
    what else is in it.
    """

    cards: tuple[JobCard, ...]
    beside: FolderReport = NOTHING_BESIDE


@dataclass(frozen=True, slots=True)
class FolderDeleted:
    """A person deleted a job's folder here: nobody wants the job any more."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class FolderEdited:
    """A person edited a job's folder here: it is another job now; ``digest`` is of what it was."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class TrainerReported:
    """Our trainer said something."""

    run_id: RunId
    report: Report


@dataclass(frozen=True, slots=True)
class TrainerExited:
    """Our trainer's process is gone. ``reason``: its exit code or signal, for people."""

    run_id: RunId
    reason: str


@dataclass(frozen=True, slots=True)
class SubmitAsked:
    """The user wants this run queued (again); the card's run id is a new one."""

    card: JobCard


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """The user cancels a run."""

    run_id: RunId


@dataclass(frozen=True, slots=True)
class PauseAsked:
    """The user has a run wait, or go on (``paused`` is False) at its place in the queue."""

    run_id: RunId
    paused: bool


@dataclass(frozen=True, slots=True)
class Fetched:
    """A part of a run is whole and in its place; of a job's folder JobsScanned tells in a moment."""

    run_id: RunId
    part: Part


@dataclass(frozen=True, slots=True)
class FetchFailed:
    """A part of a run could not be fetched; ``reason`` names the nodes and what each did wrong."""

    run_id: RunId
    part: Part
    reason: str


@dataclass(frozen=True, slots=True)
class LeaveAsked:
    """The node shall leave in good order (SIGTERM)."""

    reason: str


@dataclass(frozen=True, slots=True)
class TimerFired:
    """``next_deadline()`` has passed."""


Event = (
    CandidateSeen
    | DialFailed
    | LinkUp
    | LinkDown
    | Received
    | InboundLost
    | JobsScanned
    | FolderDeleted
    | FolderEdited
    | TrainerReported
    | TrainerExited
    | SubmitAsked
    | CancelAsked
    | PauseAsked
    | Fetched
    | FetchFailed
    | LeaveAsked
    | TimerFired
)
