"""One node, event by event."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daisychain.core.effects import (
    CloseLink,
    Dial,
    Effect,
    KillTrainer,
    Leave,
    Level,
    Note,
    PersistIncarnation,
    PersistTerm,
    RecordJob,
    Send,
    StartTrainer,
    StopTrainer,
    Tell,
)
from daisychain.core.events import (
    CancelAsked,
    CandidateSeen,
    DialFailed,
    InboundLost,
    JobsScanned,
    LeaveAsked,
    LinkDown,
    LinkUp,
    SubmitAsked,
    TimerFired,
    TrainerExited,
    TrainerReported,
)
from daisychain.core.ids import Address, ClusterId, Generation, RunId, Term
from daisychain.core.jobs import JobState
from daisychain.core.messages import CancelRun, Goodbye, Heartbeat, HeartbeatAck, OfferBlob, PlanWorld
from daisychain.core.node import NodeStatus, TrainerState, TrainerStatus
from daisychain.core.orders import FormWorld, LeaveWorld
from daisychain.core.reports import (
    LocalBlob,
    Phase,
    Pong,
    Progress,
    RunFailed,
    RunFinished,
    TrainerReady,
    WorldBroken,
    WorldFormed,
)
from daisychain.core.standby import standing_by
from daisychain.wire.codec import PEER_CODEC
from unit.core.chains import (
    CAPACITY,
    CARD,
    CLUSTER,
    READY,
    RUN,
    SETTINGS,
    Bench,
    generation,
    info,
    node_id,
    of,
    plan,
    status,
)

LEADER = Term(4, node_id(2))


def told(effects: list[Effect]) -> list[NodeStatus]:
    """Return the statuses that were sent, in order."""
    sent = [effect.message for effect in of(Send, effects) if isinstance(effect, Send)]
    return [message.status for message in sent if isinstance(message, Heartbeat)]


def follower() -> Bench:
    """Return node 1, which follows node 2 and has the job."""
    bench = Bench()
    bench.do(JobsScanned((CARD,)))
    bench.link(2)
    bench.beat(2, replace(status(LEADER, (1, 2), leading=True), current=RUN))
    return bench


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


def test_a_lone_node_loads_and_trains_its_job_to_the_end() -> None:
    bench = Bench()
    effects = bench.do(JobsScanned((CARD,))) + bench.wait(SETTINGS.settle_s)
    assert [e.card.run_id for e in of(StartTrainer, effects) if isinstance(e, StartTrainer)] == [RUN]
    effects = bench.ready()
    worlds = [e.order.plan for e in effects if isinstance(e, Tell) and isinstance(e.order, FormWorld)]
    assert [world.world_size for world in worlds] == [1]
    bench.report(LocalBlob(worlds[0].generation, 0, b"x"))
    bench.report(WorldFormed(worlds[0].generation, 0, 0, False, 0.1))
    assert bench.machine.view(bench.now).trainer.state is TrainerState.TRAINING
    effects = bench.report(RunFinished(RUN, 110, 100))
    effects += bench.wait(0.1)
    assert [e.card.state for e in of(RecordJob, effects) if isinstance(e, RecordJob)] == [JobState.FINISHED]
    assert of(StopTrainer, effects) != []
    bench.do(TrainerExited(RUN, "exit code 0"))
    assert of(StartTrainer, bench.wait(30.0)) == []
    assert bench.machine.view(bench.now).jobs[0].step == 100


def test_the_head_of_the_queue_is_loaded_while_the_node_settles() -> None:
    bench = Bench()
    assert of(StartTrainer, bench.do(JobsScanned((CARD,)))) == [StartTrainer(CARD)]
    view = bench.machine.view(bench.now)
    assert (view.coordinator, view.jobs[0].state) == (None, JobState.QUEUED)  # loaded, not yet chosen
    bench.ready()
    bench.wait(SETTINGS.settle_s / 2)
    bench.pong()
    effects = bench.wait(SETTINGS.settle_s / 2 + 0.1)
    assert of(StartTrainer, effects) == []
    assert [e for e in effects if isinstance(e, Tell) and isinstance(e.order, FormWorld)] != []
    assert bench.machine.view(bench.now).jobs[0].state is JobState.RUNNING


def test_what_was_loaded_ahead_does_not_jump_the_queue() -> None:
    bench = Bench()
    bench.do(JobsScanned((CARD,)))
    earlier = replace(CARD, run_id=RunId("bbbb-1"), name="second", digest="e" * 64, submitted_at=1.0)
    bench.link(2)
    told = replace(status(reachable=(1, 2)), jobs=(earlier,), holds=(earlier.run_id,))
    bench.keep(2, told, SETTINGS.settle_s + 0.1)
    view = bench.machine.view(bench.now)
    assert view.coordinator == node_id(1)
    assert [(c.name, c.state) for c in view.jobs] == [
        ("second", JobState.RUNNING),
        ("digits", JobState.QUEUED),
    ]


def test_what_was_loaded_for_nothing_is_killed_at_once_for_what_the_chain_trains() -> None:
    bench = Bench()
    other = replace(CARD, run_id=RunId("bbbb-1"), name="second", digest="e" * 64, submitted_at=11.0)
    bench.do(JobsScanned((CARD, other)))
    bench.link(2)
    leads = replace(status(LEADER, (1, 2), leading=True), current=other.run_id)
    effects = bench.beat(2, replace(leads, jobs=(replace(other, state=JobState.RUNNING),)))
    assert of(KillTrainer, effects) == [KillTrainer(RUN, "the chain trains second now")]
    effects = bench.do(TrainerExited(RUN, "killed by SIGKILL"))
    started = [e.card.run_id for e in effects if isinstance(e, StartTrainer)]
    assert started == [other.run_id]
    assert of(Note, effects) == []  # asked for, so it counts as no crash


def crash_for_good(bench: Bench, other: NodeStatus) -> None:
    """Have node 1's trainer die as often as it is started, while node 2 tells ``other``."""
    for _ in range(SETTINGS.restarts_max + 1):
        assert bench.machine.view(bench.now).trainer.state is TrainerState.LOADING
        bench.do(TrainerExited(RUN, "exited with code 3"))
        bench.keep(2, other, SETTINGS.restart_max_s + 0.1)


def leader_with_a_job() -> Bench:
    """Return node 1, which leads node 2 and loads the job."""
    bench = Bench()
    bench.link(2)
    bench.do(JobsScanned((CARD,)))
    bench.keep(2, status(reachable=(1, 2)), SETTINGS.settle_s + 0.1)
    return bench


def test_a_run_whose_trainer_dies_for_good_on_every_node_fails_and_the_next_is_trained() -> None:
    bench = leader_with_a_job()
    after = replace(CARD, run_id=RunId("bbbb-1"), name="second", digest="e" * 64, submitted_at=20.0)
    bench.do(JobsScanned((CARD, after)))
    bench.keep(2, status(reachable=(1, 2)), 0.1)
    lost = TrainerStatus(state=TrainerState.FAILED, run_id=RUN, reason="its trainer crashed 5 times: code 3")
    crash_for_good(bench, replace(status(reachable=(1, 2), trainer=lost), holds=(RUN,)))
    first, second = sorted(bench.machine.view(bench.now).jobs, key=lambda card: card.submitted_at)
    assert (first.state, second.state) == (JobState.FAILED, JobState.RUNNING)
    assert "its trainer crashed 5 times: exited with code 3" in first.reason


@pytest.mark.parametrize(
    "other",
    [
        replace(status(reachable=(1, 2), trainer=READY), holds=(RUN,)),
        status(reachable=(1, 2), trainer=replace(READY, stalled=True, reason="it does not answer")),
        replace(status(reachable=(1, 2)), holds=(RUN,)),
    ],
    ids=["trains it", "stalled", "is about to start its trainer"],
)
def test_a_run_goes_on_while_anybody_may_train_it(other: NodeStatus) -> None:
    bench = leader_with_a_job()
    crash_for_good(bench, other)
    view = bench.machine.view(bench.now)
    assert view.jobs[0].state is JobState.RUNNING
    assert (view.trainer.state, view.trainer.run_id) == (TrainerState.FAILED, RUN)
    assert "crashed 5 times" in view.standby


def test_why_an_earlier_run_failed_here_is_not_told_of_the_next() -> None:
    before = TrainerStatus(state=TrainerState.FAILED, run_id=RunId("bbbb-1"), reason="net.py:3: boo")
    assert standing_by(before, CARD, "no folder") == "no folder"
    assert standing_by(replace(before, run_id=RUN), CARD, "") == "net.py:3: boo"


def test_the_steps_of_one_run_are_not_told_of_the_next() -> None:
    bench = Bench()
    after = replace(CARD, run_id=RunId("bbbb-1"), name="second", digest="e" * 64, submitted_at=20.0)
    bench.do(JobsScanned((CARD, after)))
    bench.wait(SETTINGS.settle_s)
    bench.ready()
    bench.do(CancelAsked(RUN))
    bench.do(TrainerExited(RUN, "exited with code 0"))
    answer = Pong(1, Phase.LOADING, 0.1, 0.0)
    bench.do(TrainerReported(after.run_id, answer))
    bench.do(TrainerReported(RUN, answer))  # a last word of the process that is gone
    jobs = {card.name: (card.state, card.steps) for card in bench.machine.view(bench.now).jobs}
    assert jobs == {"digits": (JobState.CANCELLED, 100), "second": (JobState.RUNNING, 0)}


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


def test_a_candidate_is_dialled_and_admitted_and_told_our_status() -> None:
    bench = Bench()
    assert bench.do(CandidateSeen("mdns", info(2).address))[-1] == Dial(info(2).address)
    effects = bench.link(2)
    assert len(told(effects)) == 1
    effects = bench.beat(2, status(reachable=(1, 2)))
    assert Send(node_id(2), HeartbeatAck(1)) in effects
    assert told(effects)[0].reachable == (node_id(1), node_id(2))


def test_a_neighbour_of_another_cluster_is_named_and_never_dialled() -> None:
    bench = Bench()
    address = Address("10.0.0.77", 7000)
    effects = bench.do(CandidateSeen("mdns", address, cluster_id=ClusterId("f" * 16)))
    assert of(Dial, effects) == []
    (stranger,) = bench.machine.view(0.0).strangers
    assert stranger.address == address
    assert "daisychain key" in stranger.reason


def test_a_neighbour_whose_key_is_another_is_named_once_with_the_line_that_joins_it() -> None:
    bench = Bench()
    address, reason = Address("10.0.0.9", 7000), "it belongs to cluster feed; run `daisychain key join`"
    bench.do(CandidateSeen("seed", address))
    effects = bench.do(DialFailed(address, False, reason))
    assert [note.text for note in effects if isinstance(note, Note)] == [f"no peer at {address}: {reason}"]
    assert [stranger.reason for stranger in bench.machine.view(bench.now).strangers] == [reason]
    bench.wait(20.0)
    assert of(Note, bench.do(DialFailed(address, False, reason))) == []


def test_a_user_error_of_any_length_does_not_silence_the_heartbeats() -> None:
    bench = follower()
    bench.ready()
    effects = bench.report(RunFailed(RUN, "net.py:3", "x" * 900_000, "Shorten it"))
    heartbeat = next(e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Heartbeat))
    assert len(PEER_CODEC.encode(heartbeat)) < 10_000


def test_a_clone_of_this_node_is_refused() -> None:
    bench = Bench()
    clone = replace(info(1), machine_id="another", address=Address("10.0.0.66", 7000))
    effects = bench.do(LinkUp(clone, clone.address, "10.0.0.1"))
    assert [e for e in of(CloseLink, effects) if isinstance(e, CloseLink) and "cloned" in e.reason]
    assert [e for e in of(Note, effects) if isinstance(e, Note) and "cloned" in e.text]
    assert bench.machine.view(0.0).peers == ()


def test_a_reset_and_a_refusal_mean_death_at_once() -> None:
    bench = follower()
    effects = bench.do(LinkDown(node_id(2), True, "reset"))
    assert of(Dial, effects) == [Dial(info(2).address)]
    assert bench.machine.view(bench.now).peers[0].health == "suspect"
    effects = bench.do(DialFailed(info(2).address, refused=True, reason="refused"))
    assert bench.machine.view(bench.now).peers[0].health == "dead"
    assert of(PersistTerm, effects) == [PersistTerm(Term(5, node_id(1)))]
    assert bench.machine.view(bench.now).coordinator == node_id(1)


def test_a_reset_alone_is_mended_by_the_next_dial() -> None:
    bench = follower()
    bench.do(LinkDown(node_id(2), True, "reset"))
    bench.link(2)
    view = bench.machine.view(bench.now)
    assert (view.peers[0].health, view.coordinator) == ("alive", node_id(2))


def test_a_lost_inbound_link_is_probed_at_once() -> None:
    bench = follower()
    effects = bench.do(InboundLost(node_id(2), True))
    assert len(told(effects)) == 1
    bench.hear(2, HeartbeatAck(1))
    assert bench.machine.view(bench.now).peers[0].health == "alive"


def test_a_goodbye_counts_at_once_but_not_from_an_earlier_life() -> None:
    bench = follower()
    bench.link(2, incarnation=2)
    bench.hear(2, Goodbye(1, "late"))
    assert bench.machine.view(bench.now).peers[0].health == "alive"
    effects = bench.hear(2, Goodbye(2, "asked to"))
    assert bench.machine.view(bench.now).peers[0].health == "left"
    assert of(CloseLink, effects) != []


@pytest.mark.parametrize("source", ["mdns", "inbound"])
@pytest.mark.parametrize("port_again", [True, False])
def test_who_left_and_is_seen_again_is_dialled_and_comes_back(source: str, port_again: bool) -> None:
    bench = follower()
    bench.hear(2, Goodbye(1, "asked to"))
    old = info(2).address
    address = old if port_again else Address(old.host, old.port + 1)
    effects = bench.do(CandidateSeen(source, address, node_id(2), CLUSTER)) + bench.wait(SETTINGS.redial_s)
    assert Dial(address) in effects
    bench.do(LinkUp(replace(info(2, incarnation=2), address=address), address, "10.0.0.1"))
    bench.hear(2, Heartbeat(1, replace(status(LEADER, (1, 2)), incarnation=2)))
    assert bench.machine.view(bench.now).peers[0].health == "alive"


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


def member() -> tuple[Bench, Generation]:
    """A node in a world with node 2, and that world's generation."""
    bench = follower()
    bench.ready()
    bench.hear(2, PlanWorld(plan(1, (2, 1), LEADER)))
    current = generation(1, LEADER)
    bench.report(LocalBlob(current, 1, b"me"))
    bench.report(WorldFormed(current, 0, 0, False, 0.1))
    return bench, current


@pytest.mark.parametrize(
    ("counter", "quiet_s", "health"),
    [
        pytest.param(1, 0.3, "alive", id="data comes"),
        pytest.param(1, 1.0, "suspect", id="none came for a second"),
        pytest.param(1, 5.0, "dead", id="none came for five"),
        pytest.param(2, 0.0, "dead", id="it came in another world"),
        pytest.param(None, 0.0, "dead", id="there is no world"),
    ],
)
def test_data_of_a_step_that_takes_long_is_a_sign_of_life(
    counter: int | None, quiet_s: float, health: str
) -> None:
    bench, _ = member()
    told_of = None if counter is None else generation(counter, LEADER)
    for _ in range(40):
        bench.wait(0.2)
        bench.report(Pong(1, Phase.EXCHANGING, 0.2, 0.0, told_of, quiet_s))
    assert bench.machine.view(bench.now).peers[0].health == health


def test_a_slow_peer_that_commits_steps_with_us_is_not_declared_dead() -> None:
    bench, current = member()
    for step in range(1, 40):
        bench.wait(0.2)
        bench.pong()
        bench.report(Progress(current, step, step, 100, 0, 0.5, 32, 0.2, (16, 16), 160.0))
    assert bench.machine.view(bench.now).peers[0].health == "alive"


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


def test_a_job_that_fails_on_the_only_node_has_failed_with_the_node_and_the_line() -> None:
    bench = Bench()
    bench.do(JobsScanned((CARD,)))
    bench.wait(SETTINGS.settle_s)
    bench.ready()
    effects = bench.report(RunFailed(RUN, "model.py:12", "division by zero", "Mend the line."))
    (card,) = bench.machine.view(bench.now).jobs
    assert card.state is JobState.FAILED
    assert card.reason == "on n1: model.py:12: division by zero. Mend the line."
    assert of(RecordJob, effects) == [RecordJob(card)]
    assert of(StopTrainer, effects) == [StopTrainer(RUN, "it failed")]


def test_a_node_where_the_run_fails_tells_it_and_stands_by_to_the_end() -> None:
    bench = follower()
    bench.ready()
    effects = bench.report(RunFailed(RUN, "model.py:12", "division by zero", "Mend the line.", 6))
    status_told = told(effects)[0]
    assert (status_told.trainer.state, status_told.trainer.failed_at) == (TrainerState.FAILED, 6)
    assert status_told.standby == "model.py:12: division by zero. Mend the line."
    assert not any(card.state.ended for card in status_told.jobs)  # that is for the coordinator to say
    assert of(StopTrainer, effects) == [StopTrainer(RUN, "it failed")]
    leads = replace(status(LEADER, (1, 2), leading=True), current=RUN)
    effects = bench.do(TrainerExited(RUN, "exited with code 0")) + bench.keep(2, leads, 30.0)
    assert of(StartTrainer, effects) == []
    assert of(Note, effects) == []
    view = bench.machine.view(bench.now)
    assert view.standby == "model.py:12: division by zero. Mend the line."
    assert view.trainer == replace(status_told.trainer)


def test_a_run_submitted_again_is_tried_again_where_the_last_one_failed() -> None:
    bench = follower()
    bench.ready()
    bench.report(RunFailed(RUN, "model.py:12", "division by zero", "Mend the line.", 6))
    bench.do(TrainerExited(RUN, "exited with code 0"))
    again = replace(CARD, run_id=RunId("aaaa-2"), state=JobState.RUNNING)
    leads = replace(status(LEADER, (1, 2), leading=True), current=again.run_id, jobs=(again,))
    assert [e.card.run_id for e in bench.beat(2, leads) if isinstance(e, StartTrainer)] == [again.run_id]
    assert bench.machine.view(bench.now).standby == "loading digits"


def test_a_job_that_failed_elsewhere_ends_here() -> None:
    bench = follower()
    bench.ready()
    failed = replace(CARD, state=JobState.FAILED, reason="on n2: no")
    effects = bench.beat(2, replace(status(LEADER, (1, 2), leading=True), jobs=(failed,)))
    assert of(StopTrainer, effects) != []
    assert bench.machine.view(bench.now).jobs[0].reason == "on n2: no"


def test_a_cancel_is_told_to_all_and_ends_the_trainer() -> None:
    bench = follower()
    bench.ready()
    effects = bench.do(CancelAsked(RUN))
    assert Send(node_id(2), CancelRun(RUN)) in effects
    assert of(StopTrainer, effects) != []
    other = follower()
    other.ready()
    assert of(StopTrainer, other.hear(2, CancelRun(RUN))) != []


def test_a_submitted_run_of_a_folder_that_is_here_is_trained() -> None:
    bench = Bench(ledger=(replace(CARD, state=JobState.FINISHED),))
    bench.do(JobsScanned((CARD,)))
    assert of(StartTrainer, bench.wait(5.0)) == []
    again = replace(CARD, run_id=RunId("aaaa-2"))
    assert RecordJob(again) in bench.do(SubmitAsked(again))  # so that a restart does not forget it
    started = of(StartTrainer, bench.wait(1.0))
    assert started == []  # decided at once, with the event itself
    assert bench.machine.view(bench.now).trainer.run_id == "aaaa-2"


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


def alien_leader(bench: Bench) -> None:
    """Node 2, of another version, is met and leads."""
    facts = replace(info(2), version="9.9.0")
    bench.do(LinkUp(facts, facts.address, "10.0.0.1"))
    bench.beat(2, replace(status(LEADER, (1, 2), leading=True), current=RUN))


def test_a_trainer_that_was_loaded_ahead_for_a_chain_of_another_version_ends_and_the_node_says_why() -> None:
    bench = Bench()
    bench.do(JobsScanned((CARD,)))
    bench.ready()
    alien_leader(bench)
    view = bench.machine.view(bench.now)
    assert "9.9.0" in view.standby
    assert "install the same version" in view.standby
    assert view.trainer.state is TrainerState.NONE


def test_a_coordinator_of_another_version_costs_no_state_that_was_trained() -> None:
    bench = Bench()
    bench.do(JobsScanned((CARD,)))
    bench.wait(SETTINGS.settle_s)
    (order,) = [e.order for e in bench.ready() if isinstance(e, Tell) and isinstance(e.order, FormWorld)]
    bench.report(WorldFormed(order.plan.generation, 0, 0, False, 0.1))
    bench.report(WorldBroken(order.plan.generation, 5, 5, False, "closed by peer"))
    alien_leader(bench)
    view = bench.machine.view(bench.now)
    assert "9.9.0" in view.standby
    assert view.trainer.state is TrainerState.READY


def test_what_came_from_the_disk_stays_there_when_a_coordinator_of_another_version_is_met() -> None:
    bench = Bench()
    bench.do(JobsScanned((CARD,)))
    bench.report(TrainerReady(RUN, CAPACITY, "same", 5, 5, 100, 10))
    alien_leader(bench)
    view = bench.machine.view(bench.now)
    assert "9.9.0" in view.standby
    assert view.trainer.state is TrainerState.NONE


def test_our_own_id_at_another_address_is_dialled_for_it_may_be_a_cloned_disk() -> None:
    bench = Bench()
    elsewhere = Address("10.0.0.99", 7000)
    assert Dial(elsewhere) in bench.do(CandidateSeen("mdns", elsewhere, node_id(1), CLUSTER))
    own = info(1).address
    assert of(Dial, bench.do(CandidateSeen("mdns", own, node_id(1), CLUSTER))) == []
