"""How the files of runs spread: what this node lacks, who has it, and how fast it may move."""

from __future__ import annotations

from daisychain.core.effects import Effect, PaceBundles, Part, Source
from daisychain.core.fetching import Lack, pace_beside_training
from daisychain.core.ids import RunId
from daisychain.core.jobs import JobCard, JobState
from daisychain.core.node import TrainerState
from daisychain.core.parts import Parts


def spread(parts: Parts, now: float) -> list[Effect]:
    """Have what is lacking fetched, at the pace that the chain's training leaves."""
    effects: list[Effect] = []
    pace = pace_beside_training(parts.settings) if _trains(parts) else 0.0
    if pace != parts.bundle_pace:
        parts.bundle_pace = pace
        effects.append(PaceBundles(pace))
    return effects + parts.folders.review(lacking_folders(parts), now)


def lacking_folders(parts: Parts) -> list[Lack]:
    """Return the runs that are not over and whose folder this node does not have, the most wanted first.

    First the one that the chain trains, then those that ran before, then the queue in its order. What a
    person took away here does not come back from a peer: it may be a deletion, which is believed later.
    """
    queue = parts.queue
    going = [card for card in queue.all() if not card.state.ended]
    cards = [card for card in going if not queue.holds(card) and not queue.removed(card)]
    cards.sort(key=lambda card: (card.run_id != parts.current, card.state is not JobState.RUNNING))
    return [Lack(card, _sources(parts, card.run_id, Part.FOLDER)) for card in cards]


def _sources(parts: Parts, run_id: RunId, part: Part) -> tuple[Source, ...]:
    """Return the present nodes that have this part of the run, by name."""
    found = [
        Source(peer.info.node_id, peer.info.name, peer.address)
        for peer in parts.members
        if peer.present and peer.status is not None and run_id in peer.status.holds
    ]
    return tuple(sorted(found, key=lambda source: (source.name, source.node_id)))


def _trains(parts: Parts) -> bool:
    """Whether some present node's trainer is in a world, or about to be."""
    statuses = [peer.status for peer in parts.members if peer.present and peer.status is not None]
    trainers = [parts.watch.status, *(status.trainer for status in statuses)]
    return any(trainer.state in (TrainerState.FORMING, TrainerState.TRAINING) for trainer in trainers)


def why_no_folder(parts: Parts, card: JobCard) -> str:
    """Return why this node does not have the folder of a run yet, for people."""
    if parts.queue.removed(card):
        return f"jobs/{card.name} was taken away here: put it back to train along"
    told = parts.folders.told(card.run_id)
    if told:
        return told
    return f"this node has no folder jobs/{card.name}, and nobody whom it reaches has it whole"
