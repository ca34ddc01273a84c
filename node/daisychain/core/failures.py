"""When a run has failed, and when only a node has failed at it: what is known, and the decision from it.

A fault that shows on one node may be that node's own: its memory, its copy of a library, its hardware. So the
part of the tick that failed there is tried by the others, and the node stands by. When it fails on
another node, too, or when nobody is left to try it, the fault is the job's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from daisychain.core.compute_world import Applicant
from daisychain.core.ids import NodeId, RunId
from daisychain.core.jobs import REASON_MAX, JobCard, told_reason
from daisychain.core.node import NodeInfo, TrainerState
from daisychain.core.world_phase import is_expected

NAMES_ROOM = 40
"""Characters beside each reason, for the names of the nodes that tell it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A part of a tick that one node could not compute: the latest of that node."""

    node_id: NodeId
    name: str
    tick: int
    reason: str


class Failures:
    """What this node heard of failed parts of one run: kept though who told it is gone, or starts anew.

    Every node keeps it, since each may be the next coordinator. At most one for each node.
    """

    def __init__(self) -> None:
        self._run: RunId | None = None
        self._known: dict[NodeId, Failure] = {}

    def take_in(self, run_id: RunId, applicants: Iterable[Applicant]) -> tuple[Failure, ...]:
        """Remember what the present nodes tell of a run, and return all that is known of it, by node id.

        What was known of an earlier run is forgotten.
        """
        if run_id != self._run:
            self._run = run_id
            self._known.clear()
        for applicant in applicants:
            info, trainer = applicant.info, applicant.trainer
            if trainer.run_id == run_id and trainer.failed_at is not None:
                self._known[info.node_id] = Failure(
                    info.node_id, info.name, trainer.failed_at, trainer.reason
                )
        return tuple(self._known[node_id] for node_id in sorted(self._known))


def run_failed(
    card: JobCard, applicants: tuple[Applicant, ...], failures: tuple[Failure, ...], coordinator: NodeInfo
) -> str:
    """Return why the run itself has failed; empty while it may go on.

    ``failures``: of this run, those of nodes that are gone included.
    """
    return failed_twice(card, applicants, failures) or given_up(card, applicants, coordinator)


def failed_twice(card: JobCard, applicants: tuple[Applicant, ...], failures: tuple[Failure, ...]) -> str:
    """Return why no node will do: two tried a part of the same tick, and nobody has got past it."""
    past = max((a.trainer.tick for a in applicants if a.trainer.run_id == card.run_id), default=0)
    for tick in sorted({failure.tick for failure in failures if failure.tick > past}):
        same = [failure for failure in failures if failure.tick == tick]
        if len(same) > 1:
            return in_words((failure.name, failure.reason) for failure in same)
    return ""


def given_up(card: JobCard, applicants: tuple[Applicant, ...], coordinator: NodeInfo) -> str:
    """Return why nobody is left: it failed on some node for good, and no other trains it or may yet.

    Empty while somebody does: one node that cannot train a job is no reason to take it from the others.
    """
    failed: list[tuple[str, str]] = []
    for applicant in applicants:
        trainer = applicant.trainer
        if trainer.run_id == card.run_id and trainer.state is TrainerState.FAILED:
            failed.append((applicant.info.name, trainer.reason))
        elif trainer.run_id == card.run_id or is_expected(applicant, coordinator, card):
            return ""
    return in_words(failed)


def in_words(failed: Iterable[tuple[str, str]]) -> str:
    """Return one text for (node's name, reason) of each: nodes with one reason are named together."""
    names: dict[str, list[str]] = {}
    for name, reason in failed:
        names.setdefault(reason, []).append(name)
    # A long reason must not hide that another node failed, too.
    room = max(NAMES_ROOM, REASON_MAX // max(1, len(names)) - NAMES_ROOM)
    return "; ".join(
        f"on {_listed(together)}: {told_reason(reason, room)}" for reason, together in names.items()
    )


def _listed(names: list[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
