"""What a person is told of each run: its place, who works on it, how long it takes, why it waits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from daisychain.core.ids import RunId
from daisychain.core.job_names import labels
from daisychain.core.jobs import JobCard, JobState
from daisychain.core.node import TrainerState, TrainerStatus

ENDED_SHOWN_MAX = 16
"""Most ended runs that people are shown: what a peer tells, or a year's work, must not hide the queue."""

_AT_WORK = (TrainerState.FORMING, TrainerState.TRAINING, TrainerState.DONE)


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """One run as people see it.

    Attributes:
        label: what it is called, see `job_names`.
        place: in the queue, from 1, the one that trains first; 0 when it has ended.
        workers: the names of the nodes that train it.
        eta_s: seconds to its last step at the pace of the last half minute; None when that is not known.
        waits: why it does not train, for people; empty when it does or has ended.
    """

    card: JobCard
    label: str
    place: int
    workers: tuple[str, ...]
    eta_s: float | None
    waits: str


@dataclass(frozen=True, slots=True)
class Situation:
    """What the answers are made from.

    Attributes:
        current: the run that the chain trains; None when none.
        trainers: of every node that is here, with its name.
        available: the runs that some node which is here can train.
        steps_per_s: of the current run; None when not known.
        waiting: what the coordinator waits for, where this node knows it.
    """

    current: RunId | None
    trainers: Sequence[tuple[str, TrainerStatus]]
    available: Collection[RunId]
    steps_per_s: float | None
    waiting: str = ""


def queue_view(cards: Sequence[JobCard], at: Situation) -> tuple[QueuedJob, ...]:
    """Return the runs in the order in which they are trained; last those that ended lately, as in ``cards``.

    A withdrawn run, which a newer one of the same name has replaced, is history that nobody asks for.
    """
    going = sorted((card for card in cards if not card.state.ended), key=lambda card: _turn(card, at))
    names = labels(cards)
    first = next((c for c in going if c.state is not JobState.PAUSED and c.run_id in at.available), None)
    queued = [
        QueuedJob(
            card,
            names[card.run_id],
            place,
            _workers(card, at, _AT_WORK),
            _eta_s(card, at),
            _waits(card, place, "" if first is None or first is card else names[first.run_id], at),
        )
        for place, card in enumerate(going, 1)
    ]
    ended = [QueuedJob(card, names[card.run_id], 0, (), None, "") for card in _history(cards)]
    return (*queued, *ended)


def _history(cards: Sequence[JobCard]) -> list[JobCard]:
    """Return the last ENDED_SHOWN_MAX runs that ended and that people are still told of, in their order."""
    newest: dict[str, JobCard] = {}
    for card in sorted(cards, key=lambda card: (card.submitted_at, card.run_id)):
        newest[card.name] = card
    told = [
        card
        for card in cards
        if card.state.ended and (card.state is not JobState.WITHDRAWN or newest[card.name] is card)
    ]
    return told[-ENDED_SHOWN_MAX:]


def _turn(card: JobCard, at: Situation) -> tuple[bool, bool]:
    """Sort key beside the order of the queue: what trains, then what had begun to."""
    return (card.run_id != at.current, card.state is not JobState.RUNNING)


def _workers(card: JobCard, at: Situation, states: Collection[TrainerState]) -> tuple[str, ...]:
    return tuple(sorted(name for name, t in at.trainers if t.run_id == card.run_id and t.state in states))


def _eta_s(card: JobCard, at: Situation) -> float | None:
    if card.run_id != at.current or not card.steps or not at.steps_per_s:
        return None
    return (card.steps - card.step) / at.steps_per_s


def _waits(card: JobCard, place: int, ahead: str, at: Situation) -> str:
    """Return why the run does not train; ``ahead``: what is trained before it."""
    if card.state is JobState.PAUSED:
        return card.reason
    if _workers(card, at, _AT_WORK):
        return ""
    if card.run_id not in at.available:
        return f"{ordinal(place)}: no node that is here has its folder"
    if ahead:
        return f"{ordinal(place)}: waits for {ahead}"
    if card.least_nodes > len(at.trainers):
        there = "1 is" if len(at.trainers) == 1 else f"{len(at.trainers)} are"
        return f"waits for {card.least_nodes} nodes, {there} here"
    loading = _workers(card, at, (TrainerState.LOADING,))
    if loading:
        return f"is loaded by {', '.join(loading)}"
    return f"waits for {at.waiting}" if at.waiting else "about to begin"


def ordinal(place: int) -> str:
    """Return ``1st``, ``2nd``, ``3rd``, ``4th``, ``11th`` ..."""
    ending = "th" if place % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{ending}"
