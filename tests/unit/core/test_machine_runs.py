"""One node, event by event: runs from the queue to their end, and the trainer that each needs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daisychain.core.effects import (
    KillTrainer,
    Note,
    RecordJob,
    Send,
    StartTrainer,
    StopTrainer,
    Tell,
)
from daisychain.core.events import (
    CancelAsked,
    FolderDeleted,
    FolderEdited,
    JobsScanned,
    LinkUp,
    PauseAsked,
    SubmitAsked,
    TrainerExited,
    TrainerReported,
)
from daisychain.core.ids import RunId
from daisychain.core.jobs import JobState
from daisychain.core.messages import CancelRun, PlanWorld
from daisychain.core.node import NodeStatus, TrainerState, TrainerStatus
from daisychain.core.orders import FormWorld, LeaveWorld
from daisychain.core.reports import (
    LocalBlob,
    Phase,
    Pong,
    RunFailed,
    RunFinished,
    TrainerReady,
    WorldBroken,
    WorldFormed,
)
from daisychain.core.standby import standing_by
from unit.core.chains import (
    CAPACITY,
    CARD,
    LEADER,
    READY,
    RUN,
    SETTINGS,
    Bench,
    follower,
    generation,
    info,
    node_id,
    of,
    plan,
    status,
    told,
)


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


def test_a_paused_run_ends_its_trainer_in_order_and_goes_on_when_resumed() -> None:
    bench = Bench()
    bench.do(JobsScanned((CARD,)))
    bench.wait(SETTINGS.settle_s)
    (order,) = [e.order for e in bench.ready() if isinstance(e, Tell) and isinstance(e.order, FormWorld)]
    bench.report(LocalBlob(order.plan.generation, 0, b"x"))
    bench.report(WorldFormed(order.plan.generation, 0, 0, False, 0.1))
    effects = bench.do(PauseAsked(RUN, paused=True))
    assert of(StopTrainer, effects) == [StopTrainer(RUN, "digits is paused")]
    recorded = [e.card for e in effects if isinstance(e, RecordJob)]
    assert [(card.state, card.reason) for card in recorded] == [(JobState.PAUSED, "paused by the user")]
    effects = bench.do(TrainerExited(RUN, "exit code 0")) + bench.wait(30.0)
    assert of(StartTrainer, effects) == []
    bench.do(PauseAsked(RUN, paused=True))  # once more changes nothing
    effects = bench.do(PauseAsked(RUN, paused=False))
    assert [e.card.revision for e in effects if isinstance(e, RecordJob)] == [2]
    assert [e.card.state for e in effects if isinstance(e, StartTrainer)] == [JobState.RUNNING]
    assert bench.do(PauseAsked(RUN, paused=False)) == []


def test_a_run_is_finished_when_the_pause_comes_after_its_last_step() -> None:
    bench = follower()
    bench.ready()
    bench.report(RunFinished(RUN, 110, 100))
    bench.do(PauseAsked(RUN, paused=True))
    assert bench.machine.view(bench.now).jobs[0].state is JobState.FINISHED


def test_a_follower_pauses_what_the_coordinator_still_names() -> None:
    bench = follower()
    bench.ready()
    paused = replace(CARD, state=JobState.PAUSED, revision=1)
    leads = replace(status(LEADER, (1, 2), leading=True), current=RUN, jobs=(paused,))
    assert of(StopTrainer, bench.beat(2, leads)) == [StopTrainer(RUN, "digits is paused")]
    bench.do(TrainerExited(RUN, "exit code 0"))
    assert of(StartTrainer, bench.keep(2, leads, 5.0)) == []


def test_a_node_that_others_leave_no_room_for_says_so() -> None:
    bench = follower()
    few = replace(CARD, max_nodes=1, state=JobState.RUNNING)
    trains = TrainerStatus(state=TrainerState.TRAINING, run_id=RUN, generation=generation(1, LEADER))
    leads = replace(status(LEADER, (1, 2), leading=True), current=RUN, jobs=(few,), trainer=trains)
    bench.beat(2, leads)
    bench.ready()
    bench.beat(2, leads)
    assert bench.machine.view(bench.now).standby == "max_nodes of digits is 1: n2 train it"


def test_a_member_of_an_older_world_leaves_it_for_one_that_trains_without_it() -> None:
    bench = follower()
    bench.ready()
    bench.hear(2, PlanWorld(plan(1, (1, 2), LEADER)))
    without = PlanWorld(plan(2, (2, 3), LEADER))
    (left,) = [e for e in bench.hear(2, without) if isinstance(e, Tell)]
    assert isinstance(left.order, LeaveWorld)
    assert left.order.generation == generation(1, LEADER)
    assert bench.machine.view(bench.now).trainer.state is TrainerState.READY
    assert of(Tell, bench.hear(2, without)) == []


def test_a_deleted_folder_ends_its_run_and_tells_everybody_why() -> None:
    bench = follower()
    bench.ready()
    effects = bench.do(FolderDeleted("digits", CARD.digest))
    assert of(StopTrainer, effects) == [StopTrainer(RUN, "the run is withdrawn")]
    (card,) = told(effects)[0].jobs
    assert (card.state, card.reason) == (
        JobState.WITHDRAWN,
        "its folder jobs/digits was deleted on n1",
    )
    assert of(RecordJob, effects) == [RecordJob(card)]


def test_an_edited_folder_supersedes_what_waits_and_not_what_trains() -> None:
    bench = Bench()
    waits = replace(CARD, run_id=RunId("bbbb-1"), name="second", digest="e" * 64, submitted_at=20.0)
    bench.do(JobsScanned((CARD, waits)))
    bench.wait(SETTINGS.settle_s)
    bench.ready()
    assert of(StopTrainer, bench.do(FolderEdited("digits", CARD.digest))) == []
    bench.do(FolderEdited("second", waits.digest))
    first, second = bench.machine.view(bench.now).jobs
    assert first.state is JobState.RUNNING
    assert (second.state, second.reason) == (
        JobState.WITHDRAWN,
        "superseded: jobs/second was edited on n1",
    )


def test_deleting_what_has_finished_changes_nothing() -> None:
    finished = replace(CARD, state=JobState.FINISHED)
    bench = Bench(ledger=(finished,))
    bench.do(FolderDeleted("digits", CARD.digest))
    assert bench.machine.view(bench.now).jobs == (finished,)
