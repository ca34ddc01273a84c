"""Which result of a finished run is the chain's, and whether this node lacks it: pure decisions.

Members of one run end with results that differ: clocks, logs, a last bit of a model. So one rule decides,
which needs no talk and ends alike on every node whatever the order of news: of the results that are told
the one with the least digest is the run's. A node that has another one, or none, fetches it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from daisychain.core.ids import NodeId
from daisychain.core.jobs import JobCard, JobState
from daisychain.core.node import ENDED_TOLD_MAX, HeldResult
from daisychain.core.queue import age


@dataclass(frozen=True, slots=True)
class FolderReport:
    """What the scanner found beside the jobs.

    Attributes:
        results: the whole results in this node's job folders, as they were published or fetched.
        occupied: digests of the jobs in whose folder a person's files stand where the result would go.
        sharers: the other nodes that use this very jobs folder.
        settled: whether they had the time to show themselves there; nothing is fetched before.
    """

    results: tuple[HeldResult, ...] = ()
    occupied: frozenset[str] = frozenset()
    sharers: frozenset[NodeId] = frozenset()
    settled: bool = True


NOTHING_BESIDE = FolderReport()


@dataclass(frozen=True, slots=True)
class LackedResult:
    """A result that this node does not have. ``nodes``: who tells that it has it."""

    card: JobCard
    digest: str
    nodes: frozenset[NodeId]


def writes(me: NodeId, beside: FolderReport) -> bool:
    """Whether this node is the one that writes into its jobs folder: of those that share it the least."""
    return beside.settled and all(me < other for other in beside.sharers)


def told_results(held: Iterable[HeldResult], cards: Iterable[JobCard]) -> tuple[HeldResult, ...]:
    """Return what a status tells of the results here: of the runs that ended last, at most ENDED_TOLD_MAX."""
    by_run = {result.run_id: result for result in held}
    known = sorted((card for card in cards if card.run_id in by_run), key=age, reverse=True)
    return tuple(by_run[card.run_id] for card in known[:ENDED_TOLD_MAX])


def lacking_results(
    cards: Sequence[JobCard],
    mine: FolderReport,
    others: Sequence[tuple[NodeId, tuple[HeldResult, ...]]],
) -> list[LackedResult]:
    """Return the results to fetch, those of the newest runs first.

    ``cards``: the runs of the jobs whose folders are here. Of several runs of one job only the last that
    finished counts: its result replaces the older one.
    """
    newest: dict[str, JobCard] = {}
    for card in sorted((card for card in cards if card.state is JobState.FINISHED), key=age):
        newest[card.digest] = card
    here = {result.run_id: result.digest for result in mine.results}
    lacked = []
    for card in sorted(newest.values(), key=age, reverse=True):
        told = [(r.digest, node_id) for node_id, held in others for r in held if r.run_id == card.run_id]
        if not told or card.digest in mine.occupied:
            continue
        best = min(digest for digest, _ in told)
        if card.run_id not in here or best < here[card.run_id]:
            lacked.append(LackedResult(card, best, frozenset(n for digest, n in told if digest == best)))
    return lacked
