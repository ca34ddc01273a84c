"""How the coordinator forms worlds: each transition is a story."""

from __future__ import annotations

from dataclasses import replace

from daisychain.core.compute_world import Applicant
from daisychain.core.ids import Generation, Term
from daisychain.core.messages import BLOB_MAX_BYTES, OfferBlob, PlanWorld, SpreadBlobs
from daisychain.core.node import TrainerState, TrainerStatus
from daisychain.core.rendezvous import Rendezvous
from daisychain.core.rng import Rng
from daisychain.core.shares import Capacity
from daisychain.core.world import WorldPlan
from daisychain.core.world_phase import Forming, Idle, Post, Roll, Running
from unit.core.chains import CARD, READY, SETTINGS, info, node_id

TERM = Term(1, node_id(1))
LOADING = replace(READY, state=TrainerState.LOADING, capacity=None)


class Office:
    """The rendezvous of node 1, and the trainers of three nodes."""

    def __init__(self, count: int = 3) -> None:
        self.rendezvous = Rendezvous(info(1), SETTINGS, Rng(1))
        self.trainers: dict[int, TrainerStatus] = dict.fromkeys(range(1, count + 1), READY)
        self.card = CARD
        self.quiet_at = 0.0
        self.chosen_at = 0.0
        self.now = 10.0

    def applicants(self) -> tuple[Applicant, ...]:
        everybody = tuple(node_id(number) for number in self.trainers)
        return tuple(
            Applicant(info(number), trainer, everybody, holds=True)
            for number, trainer in self.trainers.items()
        )

    def review(self, after_s: float = 0.0) -> list[Post]:
        self.now += after_s
        roll = Roll(TERM, self.card, self.chosen_at, self.applicants(), self.quiet_at)
        return self.rendezvous.review(roll, self.now)

    def plan(self, posts: list[Post]) -> WorldPlan:
        plans = [message.plan for _, message in posts if isinstance(message, PlanWorld)]
        assert len(set(plans)) == 1
        assert [target for target, _ in posts] == [member.node_id for member in plans[0].members]
        return plans[0]

    def offer(self, plan: WorldPlan, *numbers: int) -> list[Post]:
        posts: list[Post] = []
        for number in numbers:
            rank = plan.rank_of(node_id(number))
            assert rank is not None
            message = OfferBlob(plan.generation, rank, f"blob {number}".encode())
            posts = self.rendezvous.offer(node_id(number), message, self.now)
        return posts

    def formed(self, plan: WorldPlan, *numbers: int, state: TrainerState = TrainerState.TRAINING) -> None:
        for number in numbers:
            trainer = self.trainers[number]
            self.trainers[number] = replace(trainer, state=state, generation=plan.generation, tick=3)

    def broken(self, plan: WorldPlan, number: int) -> None:
        trainer = self.trainers[number]
        self.trainers[number] = replace(
            trainer, state=TrainerState.READY, generation=None, broken=plan.generation
        )

    def run(self) -> WorldPlan:
        """Bring a world of all to run."""
        plan = self.plan(self.review())
        self.offer(plan, *self.trainers)
        self.formed(plan, *self.trainers)
        assert self.review() == []
        assert isinstance(self.rendezvous.phase, Running)
        return plan


def names(plan: WorldPlan) -> list[str]:
    return [member.name for member in plan.members]


def test_blobs_go_in_one_by_one_and_out_all_together() -> None:
    office = Office()
    plan = office.plan(office.review())
    assert names(plan) == ["n1", "n2", "n3"]
    assert office.offer(plan, 1, 3) == []
    posts = office.offer(plan, 2)
    blobs = (b"blob 1", b"blob 2", b"blob 3")
    assert posts == [(member.node_id, SpreadBlobs(plan.generation, blobs)) for member in plan.members]


def test_members_that_round_differently_are_named_in_the_plan() -> None:
    office = Office()
    assert office.plan(office.review()).caution == ""
    office = Office()
    for number, digest in ((1, "a"), (2, "b"), (3, "a")):
        office.trainers[number] = replace(office.trainers[number], rounding=digest)
    caution = office.plan(office.review()).caution
    assert caution == "these machines round differently: equal to rounding, not to the bit: n1, n3 unlike n2"


def test_those_that_round_alike_or_promise_no_bits_need_no_caution() -> None:
    for digests in ("aaa", ("", "", ""), ("a", "", "a")):
        office = Office()
        for number, digest in enumerate(digests, 1):
            office.trainers[number] = replace(office.trainers[number], rounding=digest)
        assert office.plan(office.review()).caution == ""


def test_blobs_of_strangers_other_ranks_other_worlds_and_giants_are_refused() -> None:
    office = Office()
    plan = office.plan(office.review())
    other = Generation(TERM, 99, 1)
    for sender, message in [
        (9, OfferBlob(plan.generation, 1, b"x")),
        (2, OfferBlob(plan.generation, 2, b"x")),
        (2, OfferBlob(other, 1, b"x")),
        (2, OfferBlob(plan.generation, 1, b"x" * (BLOB_MAX_BYTES + 1))),
    ]:
        office.rendezvous.offer(node_id(sender), message, office.now)
    assert isinstance(office.rendezvous.phase, Forming)
    assert office.rendezvous.phase.blobs == {}


def test_the_first_world_waits_for_quiet_in_discovery() -> None:
    office = Office()
    office.quiet_at = 9.0
    assert office.review() == []
    assert "2 s of quiet" in office.rendezvous.phase.waiting  # type: ignore[union-attr]
    assert office.rendezvous.deadline(10.0) == 11.0
    assert office.review(1.0) != []


def test_the_first_world_waits_for_those_that_load_within_a_bound() -> None:
    office = Office()
    office.trainers[3] = LOADING
    assert office.review() == []
    assert isinstance(office.rendezvous.phase, Idle)
    assert "n3 to load digits" in office.rendezvous.phase.waiting
    office.now = SETTINGS.loading_wait_s
    assert names(office.plan(office.review())) == ["n1", "n2"]


def test_the_first_world_waits_for_one_that_is_about_to_load() -> None:
    office = Office()
    office.trainers[3] = TrainerStatus()
    assert office.review() == []
    office.trainers[3] = READY
    assert names(office.plan(office.review())) == ["n1", "n2", "n3"]


def test_the_first_world_waits_for_min_nodes_without_a_bound() -> None:
    office = Office()
    office.card = replace(CARD, min_nodes=4)
    assert office.review(1000.0) == []
    office.trainers[4] = READY
    assert len(office.plan(office.review()).members) == 4


def test_a_run_under_way_waits_for_nothing() -> None:
    office = Office()
    office.quiet_at, office.card = 9.9, replace(CARD, min_nodes=9)
    office.trainers[2] = replace(READY, tick=5, step=5, broken=Generation(TERM, 7, 1))
    assert names(office.plan(office.review())) == ["n1", "n2", "n3"]


SAVED = replace(READY, tick=5, step=4)
"""It was loaded from a checkpoint and has been in no world since."""


def test_after_a_total_loss_the_first_world_waits_for_quiet_and_for_those_that_load() -> None:
    """The greatest step may be on the disk of a node that comes a moment later."""
    office = Office()
    office.trainers = {1: SAVED, 2: SAVED, 3: LOADING}
    office.chosen_at, office.quiet_at = 9.0, 9.0
    assert office.review() == []
    assert "2 s of quiet" in office.rendezvous.phase.waiting  # type: ignore[union-attr]
    assert office.review(1.0) == []
    assert "n3 to load digits" in office.rendezvous.phase.waiting  # type: ignore[union-attr]
    office.trainers[3] = replace(SAVED, tick=9, step=8)
    plan = office.plan(office.review(1.0))
    assert names(plan) == ["n1", "n2", "n3"]
    assert plan.reason == "the run goes on at step 8, from disk"


def test_the_steps_of_a_trainer_that_failed_are_on_no_disk_of_the_others() -> None:
    office = Office(2)
    failed = TrainerStatus(TrainerState.FAILED, CARD.run_id, tick=900, step=800, reason="no", failed_at=901)
    office.trainers = {1: failed, 2: READY}
    office.quiet_at = 0.0
    assert office.plan(office.review()).reason == "the run starts"
    office.trainers[2] = SAVED
    office.rendezvous.reset()
    assert office.plan(office.review()).reason == "the run goes on at step 4, from disk"


def test_after_a_total_loss_min_nodes_are_waited_for_within_a_bound() -> None:
    """A machine may be gone for good: a run that has begun goes on without it."""
    office = Office(2)
    office.trainers = {1: SAVED, 2: SAVED}
    office.card, office.chosen_at = replace(CARD, min_nodes=3), 9.0
    assert office.review() == []
    assert office.rendezvous.deadline(office.now) == 9.0 + SETTINGS.loading_wait_s
    assert office.review(SETTINGS.loading_wait_s - 1.1) == []
    assert names(office.plan(office.review(0.1))) == ["n1", "n2"]


def test_when_every_trainer_died_under_living_agents_those_that_load_again_are_waited_for() -> None:
    """The run was chosen long ago, so that patience begins with the loss."""
    office = Office()
    office.run()
    office.trainers = {1: LOADING, 2: LOADING, 3: LOADING}
    assert office.review(100.0) == []
    office.trainers[1] = SAVED
    assert office.review(1.0) == []
    assert "n2, n3 to load digits" in office.rendezvous.phase.waiting  # type: ignore[union-attr]
    office.trainers[2] = SAVED
    assert office.review(SETTINGS.loading_wait_s - 1.1) == []
    assert names(office.plan(office.review(0.2))) == ["n1", "n2"]


def test_a_lone_node_whose_trainer_died_goes_on_from_its_disk_at_once() -> None:
    office = Office(1)
    office.run()
    office.trainers[1] = LOADING
    office.review(30.0)
    office.trainers[1] = SAVED
    assert names(office.plan(office.review(1.0))) == ["n1"]


def test_a_joiner_is_taken_in_after_a_moment_for_others() -> None:
    office = Office()
    first = office.run()
    office.trainers[4] = READY
    assert office.review() == []
    office.trainers[5] = READY
    plan = office.plan(office.review(SETTINGS.coalesce_s))
    assert names(plan) == ["n1", "n2", "n3", "n4", "n5"]
    assert plan.generation > first.generation
    assert plan.reason == "n4, n5 joined"


def test_a_member_that_dies_is_left_behind_at_once() -> None:
    office = Office()
    office.run()
    del office.trainers[2]
    plan = office.plan(office.review())
    assert names(plan) == ["n1", "n3"]
    assert plan.reason == "n2 is gone"


def test_a_member_whose_trainer_stalls_or_ends_is_left_behind_at_once() -> None:
    for trainer in (TrainerStatus(), replace(READY, stalled=True, reason="its trainer sleeps")):
        office = Office()
        office.run()
        office.trainers[3] = trainer
        assert names(office.plan(office.review())) == ["n1", "n2"]


def test_a_broken_world_waits_a_moment_for_evidence_then_forms_again_with_all() -> None:
    office = Office()
    plan = office.run()
    office.broken(plan, 3)
    assert office.review() == []
    assert office.review(SETTINGS.grace_s - 0.01) == []
    again = office.plan(office.review(0.01))
    assert names(again) == ["n1", "n2", "n3"]
    assert again.reason == "the world broke at n3"


def test_evidence_ends_that_wait() -> None:
    office = Office()
    plan = office.run()
    office.broken(plan, 3)
    assert office.review() == []
    del office.trainers[2]
    assert names(office.plan(office.review(0.01))) == ["n1", "n3"]


def test_whoever_gives_no_blob_in_time_is_left_out_for_a_while() -> None:
    office = Office()
    plan = office.plan(office.review())
    office.offer(plan, 1, 2)
    assert office.review(SETTINGS.formation_s - 0.01) == []
    second = office.plan(office.review(0.01))
    assert names(second) == ["n1", "n2"]
    office.offer(second, 1, 2)
    office.formed(second, 1, 2)
    assert office.review() == []
    assert "held up" in office.rendezvous.left_out[node_id(3)]
    office.review(SETTINGS.exclusion_s)
    assert names(office.plan(office.review(SETTINGS.coalesce_s))) == ["n1", "n2", "n3"]


def test_a_member_lost_while_the_world_forms_does_not_hold_it_up() -> None:
    office = Office()
    plan = office.plan(office.review())
    office.offer(plan, 1, 2, 3)
    del office.trainers[3]
    assert names(office.plan(office.review())) == ["n1", "n2"]


def test_a_world_that_never_forms_is_tried_without_one_member_by_turns() -> None:
    office = Office()
    seen: set[tuple[str, ...]] = set()
    plan = office.plan(office.review())
    for _ in range(12):
        office.offer(plan, *[int(m.node_id, 16) for m in plan.members])
        for member in plan.members:
            office.broken(plan, int(member.node_id, 16))
        posts: list[Post] = []
        while not posts:
            posts = office.review(0.1)
        plan = office.plan(posts)
        seen.add(tuple(names(plan)))
    assert {("n1", "n2"), ("n1", "n3")} <= seen


def test_what_a_member_did_not_answer_is_said_again() -> None:
    office = Office()
    plan = office.plan(office.review())
    office.trainers[2] = replace(READY, state=TrainerState.FORMING, generation=plan.generation)
    assert office.rendezvous.repeat(office.applicants()) == [(node_id(3), PlanWorld(plan))]
    office.trainers[3] = replace(READY, state=TrainerState.FORMING, generation=plan.generation)
    office.offer(plan, 1, 2, 3)
    office.formed(plan, 2)
    assert [target for target, _ in office.rendezvous.repeat(office.applicants())] == [node_id(3)]


def test_the_run_is_over_when_every_living_member_is_done() -> None:
    office = Office()
    plan = office.run()
    office.formed(plan, 1, 2, state=TrainerState.DONE)
    assert not office.rendezvous.finished(CARD.run_id, office.applicants())
    del office.trainers[3]
    assert office.rendezvous.finished(CARD.run_id, office.applicants())
    assert office.review() == []


def test_a_new_coordinator_leads_on_with_the_world_that_runs() -> None:
    old = Office()
    plan = old.run()
    office = Office()
    office.trainers = old.trainers
    office.rendezvous.adopt(plan)
    assert office.review() == []
    del office.trainers[3]
    assert names(office.plan(office.review())) == ["n1", "n2"]


def test_generations_rise_with_every_plan() -> None:
    office = Office()
    plans = [office.plan(office.review())]
    for number in (3, 2):
        del office.trainers[number]
        plans.append(office.plan(office.review()))
    assert [plan.generation.counter for plan in plans] == [1, 2, 3]
    assert len({plan.generation.nonce for plan in plans}) == 3


def test_another_run_or_none_ends_the_world() -> None:
    office = Office()
    office.run()
    assert office.rendezvous.review(Roll(TERM, None, 0.0, office.applicants(), 0.0), office.now) == []
    assert isinstance(office.rendezvous.phase, Idle)


def capped_office() -> Office:
    office = Office()
    office.card = replace(CARD, max_nodes=2)
    office.trainers[1] = replace(READY, capacity=Capacity(0.01, 0.009))
    return office


def test_a_world_as_large_as_the_job_takes_is_not_disturbed_by_who_could_train_too() -> None:
    office = capped_office()
    plan = office.plan(office.review())
    assert names(plan) == ["n2", "n3"]
    office.offer(plan, 2, 3)
    office.formed(plan, 2, 3)
    assert office.review() == []
    assert "n2, n3 train it" in office.rendezvous.left_out[node_id(1)]
    office.trainers[1] = replace(READY, capacity=Capacity(0.001, 0.0001))  # it became the fastest
    for _ in range(3):
        assert office.review(after_s=1.0) == []


def test_a_spare_node_takes_the_place_of_a_member_that_dies() -> None:
    office = capped_office()
    plan = office.plan(office.review())
    office.offer(plan, 2, 3)
    office.formed(plan, 2, 3)
    office.review()
    del office.trainers[2]
    assert names(office.plan(office.review())) == ["n1", "n3"]


def test_a_spare_node_that_has_committed_more_is_taken_in_and_who_makes_room_leaves_its_world() -> None:
    office = capped_office()
    plan = office.plan(office.review())
    office.offer(plan, 2, 3)
    office.formed(plan, 2, 3)
    office.review()
    office.trainers[1] = replace(office.trainers[1], tick=9, step=9)
    assert office.review() == []
    posts = office.review(after_s=SETTINGS.coalesce_s)
    plans = {message.plan for _, message in posts if isinstance(message, PlanWorld)}
    (newer,) = plans
    assert names(newer) == ["n1", "n2"]
    assert [target for target, _ in posts] == [node_id(1), node_id(2), node_id(3)]
    deaf = [target for target, _ in office.rendezvous.repeat(office.applicants())]
    assert node_id(3) in deaf, "until it says that it has left"
    office.broken(plan, 3)
    assert node_id(3) not in [t for t, _ in office.rendezvous.repeat(office.applicants())]


def test_who_trains_apart_in_a_newer_world_is_brought_back_though_there_is_no_room_for_it() -> None:
    """While it was cut off another coordinator made it a world, newer than the one that goes on here."""
    office = capped_office()
    plan = office.plan(office.review())
    office.offer(plan, 2, 3)
    office.formed(plan, 2, 3)
    office.review()
    apart = Generation(plan.generation.term, plan.generation.counter + 1, 77)
    office.trainers[1] = replace(office.trainers[1], state=TrainerState.TRAINING, generation=apart, tick=2)
    office.review()
    posts = office.review(after_s=SETTINGS.coalesce_s)
    (newer,) = {message.plan for _, message in posts if isinstance(message, PlanWorld)}
    assert names(newer) == ["n2", "n3"]
    assert newer.generation > apart
    assert newer.reason == "n1 trained apart"
    assert node_id(1) in [target for target, _ in posts], "so that it leaves its world"


def test_min_nodes_of_this_machine_above_the_jobs_max_nodes_is_no_wait_for_ever() -> None:
    office = capped_office()
    office.card = replace(office.card, min_nodes=3)
    assert names(office.plan(office.review())) == ["n2", "n3"]
