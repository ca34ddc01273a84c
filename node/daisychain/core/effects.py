"""Everything that a node can decide to do: the outputs of the machine, performed in order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from daisychain.core.ids import Address, NodeId, RunId, Term
from daisychain.core.jobs import JobCard
from daisychain.core.messages import Message
from daisychain.core.orders import Order


@dataclass(frozen=True, slots=True)
class PersistTerm:
    """Write the term to disk; no later effect is performed before it is there."""

    term: Term


@dataclass(frozen=True, slots=True)
class PersistIncarnation:
    """Write our own incarnation to disk before any later effect."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class RecordJob:
    """Write to the job ledger what a restart must not undo: a run ended, was asked for, or was paused."""

    card: JobCard


@dataclass(frozen=True, slots=True)
class Dial:
    """Open a link to this address; ends in LinkUp or DialFailed within the transport's bound."""

    address: Address


@dataclass(frozen=True, slots=True)
class CloseLink:
    """Close the link that we dialled to this node; no LinkDown follows."""

    node_id: NodeId
    reason: str


@dataclass(frozen=True, slots=True)
class Send:
    """Send over the link that we dialled; dropped when it is down or its queue is full."""

    node_id: NodeId
    message: Message


@dataclass(frozen=True, slots=True)
class StartTrainer:
    """Start a trainer process and give it LoadRun; one at a time."""

    card: JobCard


@dataclass(frozen=True, slots=True)
class StopTrainer:
    """End the trainer: Shutdown first, SIGKILL after a bound. TrainerExited follows."""

    run_id: RunId
    reason: str


@dataclass(frozen=True, slots=True)
class KillTrainer:
    """End the trainer at once with SIGKILL (it is frozen or stalled). TrainerExited follows."""

    run_id: RunId
    reason: str


@dataclass(frozen=True, slots=True)
class Tell:
    """Give our trainer an order; dropped when it is gone."""

    run_id: RunId
    order: Order


class Level(StrEnum):
    """How loud a note is."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Note:
    """Tell the log. ``key`` groups notes of one kind and source: at most one a minute is written."""

    level: Level
    text: str
    key: str = ""


class Part(StrEnum):
    """What of a run can be fetched from a peer."""

    FOLDER = "job"  # the files that it is trained from
    RESULT = "result"  # what came out of it


@dataclass(frozen=True, slots=True)
class Source:
    """A node that has what is to be fetched. ``address``: where our dial reached it."""

    node_id: NodeId
    name: str
    address: Address


@dataclass(frozen=True, slots=True)
class Fetch:
    """Fetch this part of a run from these nodes, or go on from these alone if it is under way.

    ``digest``: of the bundle; what has another one is not it.

    Ends once in Fetched or FetchFailed, unless it is dropped. What was fetched and verified before is kept.
    """

    card: JobCard
    part: Part
    digest: str
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class DropFetch:
    """Fetch this no longer; what is verified is kept for another time. No event follows."""

    run_id: RunId
    part: Part


@dataclass(frozen=True, slots=True)
class PaceBundles:
    """Move bundles, in and out, at no more than so many bytes a second each; 0 = as fast as it goes."""

    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Leave:
    """Everything that a leave asks for was said: end the agent now."""

    reason: str


Effect = (
    PersistTerm
    | PersistIncarnation
    | RecordJob
    | Dial
    | CloseLink
    | Send
    | StartTrainer
    | StopTrainer
    | KillTrainer
    | Tell
    | Fetch
    | DropFetch
    | PaceBundles
    | Note
    | Leave
)
