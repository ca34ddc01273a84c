"""How a node has its trainer take part: its process, its worlds, its blobs."""

from __future__ import annotations

from daisychain.core.compute_world import mismatch
from daisychain.core.effects import Effect, Level, Note, PersistTerm, Send
from daisychain.core.events import TrainerReported
from daisychain.core.jobs import JobCard, JobState
from daisychain.core.messages import OfferBlob, PlanWorld
from daisychain.core.node import TrainerState
from daisychain.core.parts import Parts
from daisychain.core.reports import LocalBlob, Pong, Progress, Report
from daisychain.core.spreading import why_no_folder
from daisychain.core.standby import cannot_train, standing_by
from daisychain.core.world import WorldPlan
from daisychain.core.world_phase import Post


def trainer_reported(parts: Parts, event: TrainerReported, now: float) -> list[Effect]:
    """Take in what our trainer says, and pass on what concerns others."""
    report = event.report
    effects = parts.watch.reported(event.run_id, report, now)
    sign_at = _sign_of_life(parts, report, now)
    if sign_at is not None and parts.watch.plan is not None:
        parts.members.prove((member.node_id for member in parts.watch.plan.members), sign_at)
    if isinstance(report, LocalBlob) and parts.watch.blob is report:
        effects += offer(parts, now)
    if parts.watch.status.run_id == event.run_id:
        parts.queue.progress(event.run_id, parts.watch.status.step, parts.watch.steps)
    return effects


def _sign_of_life(parts: Parts, report: Report, now: float) -> float | None:
    """Return when our world last showed that its members live; None when the report does not tell.

    Data shows it as well as a committed step: a member that is gone sends none, and the ring of which it
    is a part comes to a stop within moments, at its neighbour at once.
    """
    match report:
        case Progress() if parts.watch.progress is report:
            return now
        case Pong() if parts.watch.plan is not None and report.generation == parts.watch.plan.generation:
            return now - report.quiet_s
        case _:
            return None


def tend_trainer(parts: Parts, card: JobCard | None, now: float) -> list[Effect]:
    """Have the trainer that the chosen run needs here, and say why there is none."""
    barred = alien = ""
    if card is not None:
        leader = parts.leader()
        peer = None if leader is None else parts.members.get(leader)
        boss = parts.info if peer is None else peer.info
        alien = mismatch(boss, parts.info)
        no_folder = why_no_folder(parts, card)
        barred = cannot_train(
            card, parts.queue, parts.info, boss, parts.watch.gave_up(card.run_id), no_folder
        )
    loaded = parts.watch.status.run_id
    known = None if loaded is None else parts.queue.get(loaded)
    stop_reason = ""
    if known is not None and known.state.ended:
        stop_reason = f"the run is {known.state.value}"
    elif card is not None and loaded is not None and loaded != card.run_id:
        stop_reason = f"the chain trains {card.name} now"
    elif known is not None and known.state is JobState.PAUSED:
        stop_reason = f"{known.name} is paused"
    elif alien and parts.watch.fresh:
        stop_reason = alien
    effects = parts.watch.attend(None if barred else card, stop_reason, now)
    if card is None:
        parts.standby = ""
    elif alien and parts.watch.plan is None:
        parts.standby = alien
    else:
        parts.standby = standing_by(parts.watch.status, card, barred, parts.training(card.run_id))
    return effects


def repeat(parts: Parts, now: float) -> list[Effect]:
    """Say again what got no answer."""
    effects: list[Effect] = []
    if parts.election.leading:
        effects += deliver(parts, parts.rendezvous.repeat(parts.applicants()))
    elif parts.watch.blob is not None:
        effects += offer(parts, now)
    return effects


def offer(parts: Parts, now: float) -> list[Effect]:
    """Give our trainer's blob to the coordinator of its world."""
    blob, plan = parts.watch.blob, parts.watch.plan
    if blob is None or plan is None:
        return []
    message = OfferBlob(blob.generation, blob.rank, blob.blob)
    coordinator = plan.generation.term.node_id
    if coordinator != parts.info.node_id:
        return [Send(coordinator, message)]
    if not parts.election.leading:
        return []
    return deliver(parts, parts.rendezvous.offer(parts.info.node_id, message, now))


def deliver(parts: Parts, posts: list[Post]) -> list[Effect]:
    """Send the coordinator's posts; our own share of them goes to our trainer."""
    effects: list[Effect] = []
    handed_out = posts[0][1] if posts else None
    if isinstance(handed_out, PlanWorld) and handed_out.plan.rank_of(parts.info.node_id) is None:
        effects += _caution(handed_out.plan)  # members hear of it as they enter
    for node_id, message in posts:
        if node_id != parts.info.node_id:
            effects.append(Send(node_id, message))
        elif isinstance(message, PlanWorld):
            effects.append(Note(Level.INFO, _plan_text(message), "plan"))
            effects += enter(parts, message)
        else:
            effects += parts.watch.meet(message.generation, message.blobs)
    return effects


def enter(parts: Parts, message: PlanWorld) -> list[Effect]:
    """Give a plan to our trainer when this node is a member; when not, it leaves an older world."""
    if message.plan.rank_of(parts.info.node_id) is None:
        return parts.watch.dismiss(message.plan)
    effects = parts.watch.enter(message.plan)
    return [*_caution(message.plan), *effects] if effects else []


def take_office(parts: Parts) -> list[Effect]:
    """This node claimed a term: it is on disk before anyone hears of it."""
    term = parts.election.term
    parts.rendezvous.reset()
    inside = parts.watch.status.state in (TrainerState.TRAINING, TrainerState.DONE)
    if parts.watch.plan is not None and inside:
        parts.rendezvous.adopt(parts.watch.plan)
    return [PersistTerm(term), Note(Level.INFO, f"this node coordinates, term {term}", "term")]


def _caution(plan: WorldPlan) -> list[Effect]:
    return (
        [Note(Level.WARNING, f"world {plan.generation}: {plan.caution}", "caution")] if plan.caution else []
    )


def _plan_text(message: PlanWorld) -> str:
    plan = message.plan
    names = ", ".join(member.name for member in plan.members)
    return f"world {plan.generation} of {plan.world_size} ({names}): {plan.reason}"
