"""Why this node does not train though a job runs, in its own words: a pure function."""

from __future__ import annotations

from collections.abc import Sequence

from daisychain.core.compute_world import mismatch
from daisychain.core.jobs import JobCard
from daisychain.core.node import NodeInfo, TrainerState, TrainerStatus
from daisychain.core.queue import JobQueue


def cannot_train(
    card: JobCard, queue: JobQueue, me: NodeInfo, coordinator: NodeInfo, crashes: str, no_folder: str
) -> str:
    """Return why this node starts no trainer for the chain's run; empty when it does.

    ``crashes``: why it gave up starting one. ``no_folder``: how far it is with fetching the folder.
    """
    reason = mismatch(coordinator, me)
    if reason:
        return reason
    if crashes:
        return crashes
    return "" if queue.holds(card) else no_folder


def standing_by(trainer: TrainerStatus, card: JobCard, barred: str, training: Sequence[str] = ()) -> str:
    """Return why this node is in no world now; empty when it is in one, or about to be.

    ``barred``: what `cannot_train` said. ``training``: the names of the others that train the run.
    """
    if trainer.run_id == card.run_id and trainer.state not in (TrainerState.NONE, TrainerState.FAILED):
        if trainer.stalled:
            return trainer.reason
        if trainer.state is TrainerState.LOADING:
            return f"loading {card.name}"
        if trainer.state is TrainerState.READY and 0 < card.max_nodes <= len(training):
            return f"max_nodes of {card.name} is {card.max_nodes}: {', '.join(training)} train it"
        return ""
    if trainer.state is TrainerState.FAILED and trainer.run_id == card.run_id:
        return trainer.reason
    return barred
