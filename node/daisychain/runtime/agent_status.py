"""What the agent answers to the CLI over its Unix socket: plain dataclasses, JSON on the way."""

from __future__ import annotations

from dataclasses import dataclass

from daisychain.core.jobs import JobCard
from daisychain.core.view import ChainView


@dataclass(frozen=True, slots=True)
class DiscoveryView:
    """Where one way of finding nodes stands."""

    source: str
    health: str
    text: str


@dataclass(frozen=True, slots=True)
class FetchView:
    """A job's folder or a result that this node fetches.

    Attributes:
        name: the job's.
        part: ``job`` or ``result``.
        done_bytes, size_bytes: how far it is; 0 of 0 while it is not known what it holds.
        sources: the names of the nodes that have it.
    """

    name: str
    part: str
    done_bytes: int
    size_bytes: int
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """Everything that `daisychain status` shows.

    Attributes:
        view: what this node knows of the chain.
        discovery: the state of every source of candidates.
        interface, interface_reason: what the chain runs over, and why that one.
        pid: of the agent.
        trainer_pid: of its trainer; None when there is none.
        uptime_s: of the agent.
        refusals: connections sent away since its start.
        shed: messages of peers dropped because the agent could not keep up.
        problems: what a person should know: a damaged ledger, a folder that cannot be read.
        fetches: what this node fetches from others just now.
    """

    view: ChainView
    discovery: tuple[DiscoveryView, ...]
    interface: str
    interface_reason: str
    pid: int
    trainer_pid: int | None
    uptime_s: float
    refusals: int
    shed: int
    problems: tuple[str, ...]
    fetches: tuple[FetchView, ...] = ()


@dataclass(frozen=True, slots=True)
class Submitted:
    """The answer to submit: the run's card, and whether it was there before."""

    card: JobCard
    already: bool


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A part of a run's log on this node.

    ``offset``: where the next part begins. ``ended``: nothing more will come.
    """

    run_id: str
    text: str
    offset: int
    ended: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """Why the agent did not do what was asked."""

    error: str
    remedy: str
