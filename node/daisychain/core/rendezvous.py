"""How the coordinator forms worlds: idle, forming a plan, or running one.

It looks at the whole of what is known after every event (`review`), so a lost message or an event
out of order changes when something is decided, never what.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from daisychain.core.compute_world import Applicant, Selection, compute_world, crowded, unfit
from daisychain.core.exclusion import Exclusions
from daisychain.core.ids import Generation, NodeId, RunId
from daisychain.core.jobs import JobCard
from daisychain.core.messages import BLOB_MAX_BYTES, OfferBlob, PlanWorld, SpreadBlobs
from daisychain.core.node import NodeInfo, TrainerState
from daisychain.core.rng import Rng
from daisychain.core.settings import CoreSettings
from daisychain.core.world import WorldPlan
from daisychain.core.world_phase import (
    Forming,
    Idle,
    Post,
    Roll,
    Running,
    is_broken,
    is_expected,
    is_formed,
)


class Rendezvous:
    """The worlds of one coordinator; a node that does not lead is reset to idle."""

    def __init__(self, me: NodeInfo, settings: CoreSettings, rng: Rng) -> None:
        self._me = me
        self._settings = settings
        self._rng = rng
        self._counter = 0
        self._failures = 0  # formations in a row that ended without a world
        self._replan_at: float | None = None  # a broken world is replaced then at the latest
        self._replan_why = ""
        self._wait_until: float | None = None
        self._emptied_at = 0.0  # when the last world lost its last trainer
        self._exclusions = Exclusions(settings)
        self._crowd: frozenset[NodeId] = frozenset()  # who could train it, where `max_nodes` takes not all
        self.phase: Idle | Forming | Running = Idle()
        self.left_out: dict[NodeId, str] = {}

    def reset(self) -> None:
        """Forget every world: this node no longer leads."""
        self.phase = Idle()
        self._failures, self._replan_at, self._wait_until = 0, None, None
        self._exclusions.clear()
        self._crowd = frozenset()
        self.left_out = {}

    def adopt(self, plan: WorldPlan) -> None:
        """Lead on with the world that our own trainer is in: a new coordinator alone breaks nothing."""
        self.phase = Running(plan)

    def review(self, roll: Roll, now: float) -> list[Post]:
        """Decide what the worlds need now, and return what to tell whom."""
        self._wait_until = None
        if roll.card is None:
            self.reset()
            return []
        phase = self.phase
        if not isinstance(phase, Idle) and phase.plan.run_id != roll.card.run_id:
            self.reset()
            phase = self.phase
        match phase:
            case Idle():
                return self._review_idle(roll, roll.card, now)
            case Forming():
                return self._review_forming(phase, roll, roll.card, now)
            case Running():
                return self._review_running(phase, roll, roll.card, now)
            case _:
                assert_never(phase)

    def finished(self, run_id: RunId, applicants: Iterable[Applicant]) -> bool:
        """Whether every member of the run's world that still lives holds the final state: it is over."""
        if not isinstance(self.phase, Running) or self.phase.plan.run_id != run_id:
            return False
        plan = self.phase.plan
        members = [a for a in applicants if plan.rank_of(a.info.node_id) is not None]
        return bool(members) and all(
            a.trainer.run_id == plan.run_id and a.trainer.state is TrainerState.DONE for a in members
        )

    def offer(self, sender: NodeId, message: OfferBlob, now: float) -> list[Post]:
        """Take a member's blob; returns all of them for everybody once they are complete."""
        phase = self.phase
        if not isinstance(phase, Forming) or phase.plan.generation != message.generation or phase.spread:
            return []
        if phase.plan.rank_of(sender) != message.rank or len(message.blob) > BLOB_MAX_BYTES:
            return []
        phase.blobs[sender] = message.blob
        if len(phase.blobs) < phase.plan.world_size:
            return []
        phase.spread = True
        phase.deadline_at = now + self._settings.reconcile_s
        return self._blobs(phase, [member.node_id for member in phase.plan.members])

    def repeat(self, applicants: Iterable[Applicant]) -> list[Post]:
        """Say again what a member has not answered: messages may be lost."""
        phase = self.phase
        if isinstance(phase, Idle):
            return []
        applicants = tuple(applicants)
        dismissed = self._dismissed(phase.plan, applicants)
        if isinstance(phase, Running):
            return dismissed
        generation = phase.plan.generation
        deaf: list[NodeId] = []
        for applicant in applicants:
            node_id = applicant.info.node_id
            if node_id == self._me.node_id or phase.plan.rank_of(node_id) is None:
                continue
            forming = applicant.trainer.state is TrainerState.FORMING
            if forming if phase.spread else applicant.trainer.generation != generation:
                deaf.append(node_id)
        if phase.spread:
            return [*self._blobs(phase, deaf), *dismissed]
        return [*((node_id, PlanWorld(phase.plan)) for node_id in deaf), *dismissed]

    def _dismissed(self, plan: WorldPlan, applicants: Iterable[Applicant]) -> list[Post]:
        """Show the plan to those that ``max_nodes`` keeps out of it and that are still in an older world."""
        return [
            (applicant.info.node_id, PlanWorld(plan))
            for applicant in applicants
            if applicant.info.node_id in self._crowd
            and plan.rank_of(applicant.info.node_id) is None
            and applicant.trainer.generation is not None
            and applicant.trainer.generation < plan.generation
        ]

    def deadline(self, now: float) -> float | None:
        """Return when `review` next has something to decide."""
        deadlines = [self._replan_at, self._wait_until]
        if isinstance(self.phase, Forming):
            deadlines.append(self.phase.deadline_at)
        if isinstance(self.phase, Running):
            deadlines.append(self.phase.join_at)
        if not isinstance(self.phase, Forming):
            deadlines.append(self._exclusions.deadline(now))
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _review_idle(self, roll: Roll, card: JobCard, now: float) -> list[Post]:
        selection = self._select(roll, card, now)
        if not selection.members:
            self.phase = Idle("a node whose trainer is ready")
            return []
        trainers = [a.trainer for a in roll.applicants if a.trainer.run_id == card.run_id]
        if any(trainer.broken is not None or trainer.generation is not None for trainer in trainers):
            return self._form(selection, roll, card, "the run goes on under a new coordinator", now)
        # What one committed before it failed went with its process.
        step = max(trainer.step for trainer in trainers if trainer.state is not TrainerState.FAILED)
        waiting = self._first_world_waits(roll, card, selection, step > 0, now)
        if waiting:
            self.phase = Idle(waiting)
            return []
        why = f"the run goes on at step {step}, from disk" if step else "the run starts"
        return self._form(selection, roll, card, why, now)

    def _first_world_waits(
        self, roll: Roll, card: JobCard, selection: Selection, begun: bool, now: float
    ) -> str:
        """Return what the first world in the life of all trainers still waits for; empty when it may form.

        Of a run that has ``begun`` the most advanced disk may belong to a node that loads a little longer.
        But it waits for no number of nodes without a bound: a machine may be gone for good, and whoever comes
        later with more steps passes them on.
        """
        settings = self._settings
        patient_until = max(roll.chosen_at, self._emptied_at) + settings.loading_wait_s
        if len(selection.members) < card.least_nodes and (now < patient_until or not begun):
            self._wait_until = patient_until if begun else None
            return f"{card.least_nodes} nodes (min_nodes of {card.name}); {len(selection.members)} are ready"
        if now < roll.quiet_at + settings.settle_s:
            self._wait_until = roll.quiet_at + settings.settle_s
            return f"{settings.settle_s:g} s of quiet in discovery"
        loading = [a.info.name for a in roll.applicants if is_expected(a, self._me, card)]
        if loading and now < patient_until:
            self._wait_until = patient_until
            return f"{', '.join(loading)} to load {card.name}"
        return ""

    def _review_forming(self, phase: Forming, roll: Roll, card: JobCard, now: float) -> list[Post]:
        plan, present = phase.plan, {a.info.node_id: a for a in roll.applicants}
        lost = self._lost(plan, present)
        if lost:
            return self._replan(roll, card, f"while it formed, {lost}", now)
        formed = [m for m in plan.members if is_formed(present[m.node_id], plan.generation)]
        if phase.spread and len(formed) == plan.world_size:
            self._failures, self._replan_at = 0, None
            self._exclusions.forgive(m.node_id for m in plan.members)
            self.phase = Running(plan)
            return self._review_running(self.phase, roll, card, now)
        if now >= phase.deadline_at:
            if phase.spread:
                late = [m for m in plan.members if m not in formed]
            else:
                late = [m for m in plan.members if m.node_id not in phase.blobs]
            for member in late:
                self._exclusions.add(member.node_id, now)
            names = ", ".join(member.name for member in late)
            return self._replan(roll, card, f"{names} did not enter the world in time", now)
        return self._mend(plan, present, roll, now)

    def _review_running(self, phase: Running, roll: Roll, card: JobCard, now: float) -> list[Post]:
        plan, present = phase.plan, {a.info.node_id: a for a in roll.applicants}
        if self.finished(plan.run_id, roll.applicants):
            return []
        lost = self._lost(plan, present)
        if lost:
            return self._replan(roll, card, lost, now)
        if any(present[m.node_id].trainer.generation != plan.generation for m in plan.members):
            phase.join_at = None
            return self._mend(plan, present, roll, now)
        self._replan_at = None
        selection = self._select(roll, card, now)
        astray = self._astray(plan, roll.applicants)
        if len(selection.members) <= plan.world_size and not _ahead(plan, selection, present) and not astray:
            phase.join_at = None
            if selection.spare:
                self._tell_crowd(plan)
            return []
        if phase.join_at is None:
            phase.join_at = now + self._settings.coalesce_s
        if now < phase.join_at:
            return []
        joiners = [m.name for m in selection.members if plan.rank_of(m.node_id) is None]
        reason = f"{', '.join(joiners)} joined" if joiners else f"{', '.join(astray)} trained apart"
        return self._form(selection, roll, card, reason, now)

    def _astray(self, plan: WorldPlan, applicants: Iterable[Applicant]) -> list[str]:
        """Return the names of those that ``max_nodes`` keeps out of the plan and that train in a newer world.

        A coordinator of a lower term, cut off from this one, formed it. Only a newer plan ends it.
        """
        return [
            applicant.info.name
            for applicant in applicants
            if applicant.info.node_id in self._crowd
            and plan.rank_of(applicant.info.node_id) is None
            and applicant.trainer.generation is not None
            and applicant.trainer.generation > plan.generation
        ]

    def _tell_crowd(self, plan: WorldPlan) -> None:
        """Who trains now goes on, whoever would be chosen if all began anew: say so to the others."""
        names = ", ".join(sorted(member.name for member in plan.members))
        for node_id in self._crowd:
            self.left_out.pop(node_id, None)
            if plan.rank_of(node_id) is None:
                self.left_out[node_id] = crowded(plan.world_size, names)

    def _mend(self, plan: WorldPlan, present: dict[NodeId, Applicant], roll: Roll, now: float) -> list[Post]:
        """Replace a world that members found broken, after a moment for evidence of who is gone."""
        broken = [
            m.name
            for m in plan.members
            if is_broken(present[m.node_id], plan.generation, isinstance(self.phase, Running))
        ]
        if not broken:
            self._replan_at = None
            return []
        if self._replan_at is None:
            wait_s = self._settings.grace_s * 2.0 ** min(self._failures, 10)
            self._replan_at = now + min(wait_s, self._settings.attempt_max_s)
            self._replan_why = f"the world broke at {', '.join(broken)}"
        if now < self._replan_at or roll.card is None:
            return []
        if isinstance(self.phase, Forming):
            self._failures += 1
            if (
                self._failures >= 3 and plan.world_size > 1
            ):  # nobody is known at fault: try without one, by turns
                others = [m.node_id for m in plan.members if m.node_id != self._me.node_id]
                self._exclusions.add(others[self._failures % len(others)], now)
        return self._replan(roll, roll.card, self._replan_why, now)

    def _lost(self, plan: WorldPlan, present: dict[NodeId, Applicant]) -> str:
        """Return who of a world is gone or unfit, or cut off from another member; empty when nobody."""
        gone = [member.name for member in plan.members if member.node_id not in present]
        if gone:
            return f"{', '.join(gone)} {'is' if len(gone) == 1 else 'are'} gone"
        for member in plan.members:
            applicant = present[member.node_id]
            reason = unfit(applicant, self._me, plan.run_id)
            if reason:
                return reason
            for other in plan.members:
                if other.node_id not in applicant.reachable:
                    return f"{member.name} no longer reaches {other.name}"
        return ""

    def _select(self, roll: Roll, card: JobCard, now: float) -> Selection:
        excluded = self._exclusions.now(now)
        selection = compute_world(self._me, roll.applicants, card.run_id, excluded, card.max_nodes)
        self.left_out, self._crowd = dict(selection.left_out), selection.spare
        if selection.spare:
            self._crowd |= {member.node_id for member in selection.members}
        return selection

    def _replan(self, roll: Roll, card: JobCard, reason: str, now: float) -> list[Post]:
        selection = self._select(roll, card, now)
        if not selection.members:
            self.phase, self._replan_at = Idle("a node whose trainer is ready"), None
            self._emptied_at = now
            return []
        return self._form(selection, roll, card, reason, now)

    def _form(self, selection: Selection, roll: Roll, card: JobCard, reason: str, now: float) -> list[Post]:
        self._counter += 1
        self._replan_at = None
        generation = Generation(roll.term, self._counter, self._rng.bits())
        plan = WorldPlan(generation, card.run_id, selection.members, reason, selection.caution)
        self.phase = Forming(plan, now + self._settings.formation_s)
        posts: list[Post] = [(member.node_id, PlanWorld(plan)) for member in plan.members]
        return [*posts, *self._dismissed(plan, roll.applicants)]

    def _blobs(self, phase: Forming, node_ids: Sequence[NodeId]) -> list[Post]:
        blobs = tuple(phase.blobs[member.node_id] for member in phase.plan.members)
        message = SpreadBlobs(phase.plan.generation, blobs)
        return [(node_id, message) for node_id in node_ids]


def _ahead(plan: WorldPlan, selection: Selection, present: dict[NodeId, Applicant]) -> bool:
    """Whether a full world lacks one that has committed more than any of its members."""
    if len(selection.members) < plan.world_size:
        return False
    most = max(present[member.node_id].trainer.tick for member in plan.members)
    others = [m.node_id for m in selection.members if plan.rank_of(m.node_id) is None]
    return any(present[node_id].trainer.tick > most for node_id in others)
