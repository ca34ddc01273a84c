"""One node, event by event: terms, plans, and what is told to whom."""

from __future__ import annotations

from dataclasses import replace

from daisychain.core.effects import (
    Effect,
    Leave,
    Level,
    Note,
    PersistIncarnation,
    PersistTerm,
    Send,
    StopTrainer,
    Tell,
)
from daisychain.core.events import (
    JobsScanned,
    LeaveAsked,
    TimerFired,
)
from daisychain.core.ids import Term
from daisychain.core.messages import Goodbye, Heartbeat, OfferBlob, PlanWorld
from daisychain.core.node import TrainerState
from daisychain.core.orders import FormWorld, LeaveWorld
from daisychain.core.reports import (
    LocalBlob,
    Progress,
    WorldFormed,
)
from unit.core.chains import (
    CARD,
    LEADER,
    READY,
    RUN,
    SETTINGS,
    Bench,
    follower,
    generation,
    node_id,
    of,
    plan,
    status,
    told,
)


def test_its_incarnation_is_on_disk_before_anything_else() -> None:
    assert Bench().do(TimerFired())[0] == PersistIncarnation(1)


def test_a_term_is_persisted_before_it_is_told() -> None:
    bench = Bench()
    bench.link(2)
    effects = bench.keep(2, status(reachable=(1, 2)), SETTINGS.settle_s + 0.1)
    kinds = [type(effect) for effect in effects]
    first = next(
        index
        for index, effect in enumerate(effects)
        if isinstance(effect, Send)
        and isinstance(effect.message, Heartbeat)
        and effect.message.status.leading
    )
    assert kinds.index(PersistTerm) < first


def test_a_woken_node_keeps_the_trainer_that_it_has() -> None:
    bench = follower()
    bench.ready()
    bench.now += 60.0
    effects = bench.do(TimerFired())
    assert of(StopTrainer, effects) == []
    assert bench.machine.view(bench.now).trainer.state is TrainerState.READY


def test_an_idle_chain_of_one_wakes_a_few_times_a_second_only() -> None:
    bench, calls = Bench(), 0
    bench.wait(5.0)
    while bench.now < 15.0:
        deadline = bench.machine.next_deadline()
        assert deadline is not None
        bench.now = deadline
        bench.do(TimerFired())
        calls += 1
    assert calls <= 10 / SETTINGS.heartbeat_s + 2


def test_a_plan_is_obeyed_only_from_the_coordinator_of_the_highest_term() -> None:
    bench = follower()
    bench.ready()
    good = plan(1, (2, 1), LEADER)
    for sender, message in [
        (3, PlanWorld(good)),
        (2, PlanWorld(plan(1, (2, 1), Term(3, node_id(2))))),
        (2, PlanWorld(plan(1, (2, 3), LEADER))),
    ]:
        bench.link(3)
        assert of(Tell, bench.hear(sender, message)) == []
    effects = bench.hear(2, PlanWorld(good))
    assert of(Tell, effects) == [Tell(RUN, FormWorld(good, SETTINGS.formation_s))]


def test_a_plan_may_be_the_first_word_of_a_higher_term() -> None:
    bench = follower()
    bench.ready()
    bench.link(3)
    later = Term(5, node_id(3))
    effects = bench.hear(3, PlanWorld(plan(1, (3, 1), later)))
    assert effects[0] == PersistTerm(later)
    assert of(Tell, effects) != []


def test_a_members_blob_goes_to_the_coordinator_until_it_is_answered() -> None:
    bench = follower()
    bench.ready()
    bench.hear(2, PlanWorld(plan(1, (2, 1), LEADER)))
    offer = Send(node_id(2), OfferBlob(generation(1, LEADER), 1, b"me"))
    assert offer in bench.report(LocalBlob(generation(1, LEADER), 1, b"me"))
    assert offer in bench.wait(SETTINGS.heartbeat_s + 0.01)


def test_a_woken_leader_steps_down_and_claims_nothing_before_it_has_listened() -> None:
    bench = Bench()
    bench.link(2)
    bench.keep(2, status(reachable=(1, 2)), 2.1)
    assert bench.machine.view(bench.now).coordinator == node_id(1)
    bench.now += 60.0
    effects = bench.do(TimerFired())
    assert [one.leading for one in told(effects)] == [False]
    assert bench.machine.view(bench.now).peers[0].health != "dead"
    assert of(PersistTerm, bench.wait(1.0)) == []
    bench.beat(2, status(Term(2, node_id(2)), (1, 2), leading=True))
    assert bench.machine.view(bench.now).coordinator == node_id(2)


def test_a_leave_lets_nobody_wait() -> None:
    bench = follower()
    bench.ready()
    bench.hear(2, PlanWorld(plan(1, (2, 1), LEADER)))
    effects = bench.do(LeaveAsked("SIGTERM"))
    assert effects == [
        Tell(RUN, LeaveWorld(generation(1, LEADER), "SIGTERM")),
        Send(node_id(2), Goodbye(1, "SIGTERM")),
        StopTrainer(RUN, "SIGTERM"),
        Leave("SIGTERM"),
    ]
    assert bench.machine.next_deadline() is None
    assert bench.do(TimerFired()) == []


def test_a_changed_trainer_is_told_at_once_and_plain_progress_is_not() -> None:
    bench = follower()
    assert told(bench.ready())[0].trainer.state is TrainerState.READY
    bench.hear(2, PlanWorld(plan(1, (2, 1), LEADER)))
    current = generation(1, LEADER)
    assert told(bench.report(WorldFormed(current, 0, 0, False, 0.1)))[0].trainer.generation == current
    progress = Progress(current, 1, 1, 100, 0, 0.5, 32, 0.2, (16, 16), 160.0)
    assert told(bench.report(progress)) == []
    assert told(bench.wait(SETTINGS.heartbeat_s))[-1].trainer.step == 1


def test_a_coordinator_plans_with_those_that_are_ready_and_names_the_others() -> None:
    bench = Bench()
    bench.do(JobsScanned((CARD,)))
    for number in (2, 3):
        bench.link(number)
    ready = status(reachable=(1, 2, 3), trainer=READY)
    for _ in range(12):
        bench.beat(2, ready)
        bench.beat(3, replace(status(reachable=(1, 2, 3)), standby="this node has no folder jobs/digits"))
        bench.wait(0.2)
    effects = bench.ready()
    (sent,) = [e for e in of(Send, effects) if isinstance(e, Send) and isinstance(e.message, PlanWorld)]
    assert sent.node_id == node_id(2)
    views = {peer.info.name: peer.standby for peer in bench.machine.view(bench.now).peers}
    assert views["n3"] == "this node has no folder jobs/digits"


def test_a_caution_is_noted_and_shown_by_coordinator_and_members_before_anything_is_trained() -> None:
    coordinator = Bench()
    coordinator.do(JobsScanned((CARD,)))
    coordinator.link(2)
    other = status(reachable=(1, 2), trainer=replace(READY, rounding="another"))
    for _ in range(12):
        coordinator.beat(2, other)
        coordinator.wait(0.2)
    effects = coordinator.ready()
    caution = "these machines round differently: equal to rounding, not to the bit: n1 unlike n2"
    assert coordinator.machine.view(coordinator.now).caution == caution
    order = next(e for e in effects if isinstance(e, Tell) and isinstance(e.order, FormWorld))
    (note,) = [e for e in of(Note, effects) if isinstance(e, Note) and caution in e.text]
    assert note.level is Level.WARNING
    assert effects.index(note) < effects.index(order)
    member = follower()
    member.ready()
    effects = member.hear(2, PlanWorld(replace(plan(1, (2, 1), LEADER), caution=caution)))
    assert [e for e in of(Note, effects) if isinstance(e, Note) and caution in e.text]
    assert member.machine.view(member.now).caution == caution


def test_a_coordinator_that_does_not_train_notes_and_shows_the_caution_too() -> None:
    bench = Bench()
    effects: list[Effect] = []
    for number in (2, 3):
        bench.link(number)
    while not any(isinstance(e, Send) and isinstance(e.message, PlanWorld) for e in effects):
        for number, digest in ((2, "some"), (3, "another")):
            told = status(reachable=(1, 2, 3), trainer=replace(READY, rounding=digest))
            effects += bench.beat(number, replace(told, jobs=(CARD,), holds=(RUN,)))
        effects += bench.wait(0.2)
        assert bench.now < 10.0
    assert any("n2 unlike n3" in e.text for e in of(Note, effects) if isinstance(e, Note))
    assert "n2 unlike n3" in bench.machine.view(bench.now).caution
    assert bench.machine.view(bench.now).world is None
