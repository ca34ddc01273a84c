"""How the files of runs spread: what this node lacks, who has it, and how fast it may move."""

from __future__ import annotations

from collections.abc import Collection

from daisychain.core.effects import Effect, PaceBundles, Source
from daisychain.core.fetching import Lack, pace_beside_training
from daisychain.core.ids import NodeId
from daisychain.core.jobs import JobCard, JobState
from daisychain.core.membership import Peer
from daisychain.core.node import NodeStatus, TrainerState
from daisychain.core.parts import Parts
from daisychain.core.results import lacking_results, writes


def spread(parts: Parts, now: float) -> list[Effect]:
    """Have what is lacking fetched, at the pace that the chain's training leaves."""
    effects: list[Effect] = []
    pace = pace_beside_training(parts.settings) if _trains(parts) else 0.0
    if pace != parts.bundle_pace:
        parts.bundle_pace = pace
        effects.append(PaceBundles(pace))
    if not writes(parts.info.node_id, parts.beside):
        return [*effects, *parts.folders.review((), now), *parts.results.review((), now)]
    effects += parts.folders.review(lacking_folders(parts), now)
    return effects + parts.results.review(_lacking_results(parts), now)


def lacking_folders(parts: Parts) -> list[Lack]:
    """Return the runs that are not over and whose folder this node does not have, the most wanted first.

    First the one that the chain trains, then those that ran before, then the queue in its order. What a
    person took away here does not come back from a peer: it may be a deletion, which is believed later.
    """
    queue = parts.queue
    going = [card for card in queue.all() if not card.state.ended]
    cards = [card for card in going if not queue.holds(card) and not queue.removed(card)]
    cards.sort(key=lambda card: (card.run_id != parts.current, card.state is not JobState.RUNNING))
    have = [(peer.info.node_id, status.holds) for peer, status in _told(parts)]
    return [
        Lack(card, card.digest, _sources(parts, {node_id for node_id, held in have if card.run_id in held}))
        for card in cards
    ]


def _lacking_results(parts: Parts) -> list[Lack]:
    """Return the results that this node does not have, of the jobs whose folder it has."""
    cards = [card for card in parts.queue.all() if parts.queue.holds(card)]
    others = [(peer.info.node_id, status.results) for peer, status in _told(parts)]
    lacked = lacking_results(cards, parts.beside, others)
    return [Lack(lack.card, lack.digest, _sources(parts, lack.nodes)) for lack in lacked]


def _told(parts: Parts) -> list[tuple[Peer, NodeStatus]]:
    """Return the present nodes that have a jobs folder of their own, with what they told last."""
    found = [(peer, peer.status) for peer in parts.members if peer.present]
    sharers = parts.beside.sharers
    return [(p, status) for p, status in found if status is not None and p.info.node_id not in sharers]


def _sources(parts: Parts, nodes: Collection[NodeId]) -> tuple[Source, ...]:
    """Return these nodes as those that can be asked, by name."""
    found = [
        Source(peer.info.node_id, peer.info.name, peer.address)
        for peer in parts.members
        if peer.info.node_id in nodes
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
