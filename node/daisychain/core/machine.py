"""One node's decisions: events in, effects out. No clock, no socket, no file, no thread.

The parts decide (membership, election, queue, rendezvous, the trainer's watch); the machine hands
each event to the part that it concerns, then lets every part look at the whole (`_advance`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import assert_never

from daisychain.core import links, training
from daisychain.core.effects import (
    Dial,
    Effect,
    Leave,
    Level,
    Note,
    PersistIncarnation,
    PersistTerm,
    RecordJob,
    Send,
)
from daisychain.core.events import (
    CancelAsked,
    CandidateSeen,
    DialFailed,
    Event,
    Fetched,
    FetchFailed,
    FolderDeleted,
    FolderEdited,
    InboundLost,
    JobsScanned,
    LeaveAsked,
    LinkDown,
    LinkUp,
    PauseAsked,
    Received,
    SubmitAsked,
    TimerFired,
    TrainerExited,
    TrainerReported,
)
from daisychain.core.failures import run_failed
from daisychain.core.ids import ClusterId, NodeId, Term
from daisychain.core.jobs import JobCard, JobState
from daisychain.core.membership import Health, Peer
from daisychain.core.messages import (
    CancelRun,
    Goodbye,
    Heartbeat,
    HeartbeatAck,
    Hello,
    OfferBlob,
    PlanWorld,
    SpreadBlobs,
)
from daisychain.core.node import NodeInfo
from daisychain.core.parts import Parts
from daisychain.core.reports import Progress
from daisychain.core.settings import CoreSettings
from daisychain.core.spreading import spread
from daisychain.core.view import ChainView


class Machine:
    """One node, from its start to its end.

    ``term`` and ``ledger`` come from its disk, ``info.incarnation`` is above that of its last life. Every
    call of `handle` brings one event and the present ``now`` (monotonic seconds); the driver performs
    the effects in their order, and calls again with TimerFired once `next_deadline` has passed.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a node is made of, all of it needed
        self,
        info: NodeInfo,
        cluster_id: ClusterId,
        settings: CoreSettings,
        term: Term,
        ledger: tuple[JobCard, ...],
        seed: int,
        now: float,
    ) -> None:
        self._parts = Parts(info, cluster_id, settings, term, ledger, seed, now)
        self._deadline: float = now
        self._dirty = True
        self._introduced = False
        self._gone = False

    def next_deadline(self) -> float | None:
        """Return when TimerFired is wanted; None once the node has left."""
        return None if self._gone else self._deadline

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event in and return what to do, in order."""
        if self._gone:
            return []
        effects: list[Effect] = []
        if not self._introduced:
            self._introduced = True
            effects.append(PersistIncarnation(self._parts.info.incarnation))
        effects += self._wake(now)
        effects += self._take(event, now)
        self._parts.watch_pace(now)
        if not self._gone and (self._dirty or now >= self._deadline):
            self._dirty = False
            effects += self._advance(now)
        return effects

    def view(self, now: float) -> ChainView:
        """Return what this node knows of the chain."""
        return self._parts.view(now)

    # -- events ------------------------------------------------------------------------------------

    def _take(self, event: Event, now: float) -> list[Effect]:  # noqa: PLR0912 - one case a kind
        """Hand the event to the part that it concerns."""
        parts = self._parts
        self._dirty = self._dirty or not isinstance(event, Received | TrainerReported | TimerFired)
        match event:
            case CandidateSeen():
                return links.seen(parts, event, now)
            case DialFailed():
                return links.dial_failed(parts, event, now)
            case LinkUp():
                return links.link_up(parts, event, now)
            case LinkDown():
                return links.link_down(parts, event, now)
            case InboundLost():
                return links.inbound_lost(parts, event)
            case Received():
                return self._received(event, now)
            case JobsScanned():
                parts.queue.scanned(parts.written.scanned(event.cards, parts.at_work()))
                parts.beside = event.beside
                return []
            case FolderDeleted():
                told = f"its folder jobs/{event.name} was deleted on {parts.info.name}"
                going = (JobState.QUEUED, JobState.PAUSED, JobState.RUNNING)
                return self._withdraw(event.digest, going, told)
            case FolderEdited():
                told = f"superseded: jobs/{event.name} was edited on {parts.info.name}"
                return self._withdraw(event.digest, (JobState.QUEUED, JobState.PAUSED), told)
            case SubmitAsked():
                parts.queue.asked(event.card)
                return [RecordJob(event.card)]  # no folder tells of a run that was asked for again
            case CancelAsked():
                parts.queue.mark(event.run_id, JobState.CANCELLED, "cancelled by the user")
                return [Send(node_id, CancelRun(event.run_id)) for node_id in parts.linked()]
            case PauseAsked():
                if event.paused:
                    parts.queue.mark(event.run_id, JobState.PAUSED, "paused by the user")
                else:
                    parts.queue.resume(event.run_id)
                return []
            case TrainerReported():
                return self._trainer_reported(event, now)
            case TrainerExited():
                note = parts.watch.exited(event.run_id, event.reason, now)
                return [Note(Level.WARNING, note, "trainer")] if note else []
            case Fetched():
                parts.fetching(event.part).arrived(event.run_id, now)
                return []
            case FetchFailed():
                return parts.fetching(event.part).failed(event.run_id, event.reason, now)
            case LeaveAsked():
                return self._leave(event.reason)
            case TimerFired():
                return []
            case _:
                assert_never(event)

    def _withdraw(self, digest: str, states: Collection[JobState], reason: str) -> list[Effect]:
        """End the runs of a job that are in one of ``states``; their cards tell it to all."""
        withdrawn = self._parts.queue.withdraw(digest, states, reason)
        return [Note(Level.INFO, f"run {run_id} is withdrawn: {reason}", run_id) for run_id in withdrawn]

    def _received(self, event: Received, now: float) -> list[Effect]:  # noqa: PLR0912 - one case a kind
        parts = self._parts
        known = parts.members.get(event.node_id)
        before = None if known is None else known.health
        peer = parts.members.heard(event.node_id, now)
        if peer is None:
            return []
        if peer.health is Health.DEAD:  # it lives, though our link to it is down
            parts.candidates.lost(peer.address, now)
            self._dirty = True
        self._dirty = self._dirty or peer.health is not before
        message = event.message
        match message:
            case Heartbeat():
                return self._heartbeat(peer, message, now)
            case HeartbeatAck():
                peer.answered_at = now
                return []
            case Hello():
                return []
            case Goodbye():
                if message.incarnation != peer.info.incarnation:
                    return []
                self._dirty = True
                return links.bury(parts, peer, Health.LEFT, message.reason, now)
            case PlanWorld():
                return self._planned(event.node_id, message)
            case OfferBlob():
                self._dirty = True
                posts = parts.rendezvous.offer(event.node_id, message, now) if parts.election.leading else []
                return training.deliver(parts, posts)
            case SpreadBlobs():
                if message.generation.term.node_id != event.node_id:
                    return []
                return parts.watch.meet(message.generation, message.blobs)
            case CancelRun():
                parts.queue.mark(message.run_id, JobState.CANCELLED, "cancelled by the user")
                self._dirty = True
                return []
            case _:
                assert_never(message)

    def _heartbeat(self, peer: Peer, message: Heartbeat, now: float) -> list[Effect]:
        parts = self._parts
        status, old = message.status, peer.status
        if status.incarnation > peer.info.incarnation:  # the dial to its new life comes next
            effects = links.bury(parts, peer, Health.DEAD, "it was started anew", now)
            parts.candidates.lost(peer.address, now)
            self._dirty = True
            return effects
        effects = [Send(peer.info.node_id, HeartbeatAck(message.seq))] if peer.linked else []
        if not parts.members.told(peer, message.seq, status) or status == old:
            return effects
        self._dirty = self._dirty or old is None or parts.concerned(peer, old, status)
        if old is None or status.jobs != old.jobs:
            parts.queue.learn(status.jobs)
        effects += self._adopt(status.term, peer.info.node_id)
        if parts.election.rival(status.term, status.leading):
            effects.append(PersistTerm(parts.election.term))
        return effects

    def _planned(self, sender: NodeId, message: PlanWorld) -> list[Effect]:
        """A plan counts from the coordinator of the highest known term; it may be the first word of that."""
        parts, term = self._parts, message.plan.generation.term
        if term.node_id != sender or term < parts.election.term:
            return []
        self._dirty = True
        return [*self._adopt(term, sender), *training.enter(parts, message)]

    def _adopt(self, term: Term, teller: NodeId) -> list[Effect]:
        """Take over a higher term, and stop leading a lower one."""
        parts = self._parts
        led = parts.election.leading
        if not parts.election.adopt(term):
            return []
        effects: list[Effect] = [PersistTerm(term)]
        if led:
            parts.rendezvous.reset()
            effects.append(Note(Level.INFO, f"steps down: node {teller[:8]} knows term {term}", "term"))
        return effects

    def _trainer_reported(self, event: TrainerReported, now: float) -> list[Effect]:
        before = self._parts.watch.status
        effects = training.trainer_reported(self._parts, event, now)
        changed = self._parts.watch.status is not before
        self._dirty = self._dirty or (changed and not isinstance(event.report, Progress)) or bool(effects)
        return effects

    def _leave(self, reason: str) -> list[Effect]:
        """Our trainer leaves its world first, so that nobody waits for it; then everybody hears of it."""
        parts = self._parts
        stop = parts.watch.stop(reason)
        goodbyes: list[Effect] = [
            Send(node_id, Goodbye(parts.info.incarnation, reason)) for node_id in parts.linked()
        ]
        self._gone = True
        return [*stop[:-1], *goodbyes, *stop[-1:], Leave(reason)]

    def _wake(self, now: float) -> list[Effect]:
        """Called far later than asked: this node was frozen, and what it knows may be old."""
        parts = self._parts
        late_s = now - self._deadline
        if late_s <= parts.settings.wake_s:
            return []
        parts.members.refresh(now)
        parts.watch.wake(now)
        parts.election.wake(now)
        parts.rendezvous.reset()
        parts.pulse.owe_all(now)
        self._dirty = True
        return [Note(Level.WARNING, f"this node stood still for {late_s:.1f} s; it settles anew", "wake")]

    # -- the whole ---------------------------------------------------------------------------------

    def _advance(self, now: float) -> list[Effect]:
        """Let every part look at the whole, and tell the outcome."""
        parts = self._parts
        effects: list[Effect] = []
        for peer in parts.members.silent(now):
            effects += links.bury(parts, peer, Health.DEAD, f"silent for {now - peer.heard_at:.1f} s", now)
        for peer in parts.members.unanswered(now):
            effects += links.renew(parts, peer, now)
        voices = parts.voices()
        if parts.election.review(voices, now):
            effects += training.take_office(parts)
        parts.end_what_was_paused_too_late()
        parts.end_what_is_written()
        card = parts.choose(now)
        effects += parts.watch.watch(now)
        effects += spread(parts, now)
        effects += training.tend_trainer(parts, card or parts.foreseen(), now)
        again = False
        roll = parts.roll(card)
        failures = () if card is None else parts.failures.take_in(card.run_id, roll.applicants)
        if parts.election.leading:
            if card is not None and parts.rendezvous.finished(card.run_id, roll.applicants):
                parts.queue.mark(card.run_id, JobState.FINISHED)
                again = True
            elif card is not None and (reason := run_failed(card, roll.applicants, failures, parts.info)):
                parts.queue.mark(card.run_id, JobState.FAILED, reason)
                again = True
            else:
                effects += training.deliver(parts, parts.rendezvous.review(roll, now))
        effects += [RecordJob(changed) for changed in parts.queue.to_record()]
        effects += [Dial(address) for address in parts.candidates.due(now, parts.unwanted())]
        beats, regular = parts.pulse.beat(parts.status(), parts.linked(), now)
        effects += beats
        if regular:
            effects += training.repeat(parts, now)
        self._deadline = now if again else parts.deadline(now, voices)
        return effects
