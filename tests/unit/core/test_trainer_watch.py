from __future__ import annotations

import pytest

from daisychain.core.effects import Effect, KillTrainer, Level, Note, StartTrainer, StopTrainer, Tell
from daisychain.core.node import TrainerState
from daisychain.core.orders import FormWorld, LeaveWorld, PeerBlobs, Ping
from daisychain.core.reports import (
    DiskTrouble,
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
from daisychain.core.trainer_watch import TrainerWatch
from unit.core.chains import CAPACITY, CARD, RUN, SETTINGS, generation, plan


def loaded(now: float = 0.0) -> TrainerWatch:
    watch = TrainerWatch(SETTINGS)
    assert watch.attend(CARD, "", now) == [StartTrainer(CARD)]
    watch.reported(RUN, TrainerReady(RUN, CAPACITY, "same", 0, 0, 100, 10), now)
    return watch


def training(now: float = 0.0) -> TrainerWatch:
    watch = loaded(now)
    watch.enter(plan(1, (1, 2)))
    watch.reported(RUN, LocalBlob(generation(1), 0, b"a"), now)
    watch.meet(generation(1), (b"a", b"b"))
    watch.reported(RUN, WorldFormed(generation(1), 5, 4, False, 0.1), now)
    return watch


def state(watch: TrainerWatch) -> TrainerState:
    return watch.status.state


def orders(effects: list[Effect], kind: type) -> list[object]:
    return [e.order for e in effects if isinstance(e, Tell) and isinstance(e.order, kind)]


def test_a_run_goes_from_loading_to_done() -> None:
    watch = TrainerWatch(SETTINGS)
    watch.attend(CARD, "", 0.0)
    assert state(watch) is TrainerState.LOADING
    watch.reported(RUN, TrainerReady(RUN, CAPACITY, "same", 0, 0, 100, 10), 0.0)
    assert (watch.status.state, watch.status.capacity, watch.steps) == (TrainerState.READY, CAPACITY, 100)
    told = watch.enter(plan(1, (1, 2)))
    assert told == [Tell(RUN, FormWorld(plan(1, (1, 2)), SETTINGS.formation_s))]
    assert state(watch) is TrainerState.FORMING
    watch.reported(RUN, LocalBlob(generation(1), 0, b"a"), 0.0)
    assert watch.meet(generation(1), (b"a", b"b")) == [Tell(RUN, PeerBlobs(generation(1), (b"a", b"b")))]
    assert watch.meet(generation(1), (b"a", b"b")) == []
    watch.reported(RUN, WorldFormed(generation(1), 5, 4, True, 0.1), 0.0)
    assert (watch.status.state, watch.status.tick, watch.status.step) == (TrainerState.TRAINING, 5, 4)
    watch.reported(RUN, Progress(generation(1), 9, 11, 100, 0, 0.5, 32, 0.1, (16, 16), 320.0), 0.0)
    assert (watch.status.tick, watch.status.step) == (11, 9)
    watch.reported(RUN, RunFinished(RUN, 110, 100), 0.0)
    assert state(watch) is TrainerState.DONE


def test_a_result_that_cannot_be_written_here_ends_the_run_all_the_same_and_is_noted() -> None:
    watch = training()
    effects = watch.reported(RUN, RunFinished(RUN, 110, 100, "the disk is full. Make room"), 0.0)
    assert state(watch) is TrainerState.DONE
    assert watch.status.reason == "the disk is full. Make room"
    assert [each.level for each in effects if isinstance(each, Note)] == [Level.ERROR]


def test_only_a_higher_generation_is_entered() -> None:
    watch = training()
    assert watch.enter(plan(1, (1, 2))) == []
    assert watch.enter(plan(3, (1, 2))) != []
    assert watch.enter(plan(2, (1, 2))) == []


def test_reports_of_an_older_world_change_nothing() -> None:
    watch = training()
    watch.enter(plan(2, (1, 2)))
    before = watch.status
    for report in (
        WorldFormed(generation(1), 9, 9, False, 0.1),
        WorldBroken(generation(1), 9, 9, False, "old"),
        LocalBlob(generation(1), 0, b"old"),
        Progress(generation(1), 9, 9, 100, 0, 0.5, 32, 0.1, (32,), 1.0),
    ):
        watch.reported(RUN, report, 0.0)
    assert watch.status == before
    assert watch.blob is None


def test_a_broken_world_leaves_it_ready_with_the_position_it_holds() -> None:
    watch = training()
    watch.reported(RUN, WorldBroken(generation(1), 8, 7, True, "closed by peer"), 0.0)
    status = watch.status
    assert (status.state, status.tick, status.step) == (TrainerState.READY, 8, 7)
    assert (status.generation, status.broken) == (None, generation(1))


def test_a_done_trainer_stays_done_through_a_broken_world_and_a_new_one() -> None:
    watch = training()
    watch.reported(RUN, RunFinished(RUN, 100, 100), 0.0)
    watch.reported(RUN, WorldBroken(generation(1), 100, 100, False, "closed"), 0.0)
    assert state(watch) is TrainerState.DONE
    watch.enter(plan(2, (1, 2)))
    assert state(watch) is TrainerState.FORMING
    watch.reported(RUN, WorldFormed(generation(2), 100, 100, False, 0.1), 0.0)
    assert state(watch) is TrainerState.DONE


def test_it_is_pinged_at_every_interval() -> None:
    watch = training()
    assert orders(watch.watch(0.1), Ping) == []
    assert len(orders(watch.watch(SETTINGS.ping_s), Ping)) == 1


def test_silence_is_a_stall_and_an_answer_ends_it_outside_the_old_world() -> None:
    watch = training()
    watch.watch(SETTINGS.stall_s - 0.01)
    assert not watch.status.stalled
    watch.watch(SETTINGS.stall_s)
    assert watch.status.stalled
    assert "not answered" in watch.status.reason
    effects = watch.reported(RUN, Pong(1, Phase.EXCHANGING, 9.0, 0.0), 3.0)
    assert orders(effects, LeaveWorld) == [LeaveWorld(generation(1), "this trainer had stalled")]
    assert (watch.status.state, watch.status.stalled) == (TrainerState.READY, False)
    assert watch.status.broken == generation(1)


@pytest.mark.parametrize(
    ("phase", "in_phase_s", "predicted_s", "stalled"),
    [
        (Phase.COMPUTING, 1.4, 0.1, False),
        (Phase.COMPUTING, 1.6, 0.1, True),
        (Phase.COMPUTING, 7.9, 2.0, False),
        (Phase.COMPUTING, 8.1, 2.0, True),
        (Phase.COMMITTING, 1.6, 0.1, True),
        (Phase.EXCHANGING, 60.0, 0.0, False),
        (Phase.TRANSFERRING, 60.0, 0.0, False),
        (Phase.EVALUATING, 60.0, 0.0, False),
        (Phase.EVALUATING, 60.0, 10.0, True),
    ],
)
def test_computing_longer_than_predicted_is_a_stall_and_waiting_is_none(
    phase: Phase, in_phase_s: float, predicted_s: float, stalled: bool
) -> None:
    watch = training()
    watch.reported(RUN, Pong(1, phase, in_phase_s, predicted_s), 1.0)
    assert watch.status.stalled is stalled


def test_loading_may_be_silent_but_not_for_ever() -> None:
    watch = TrainerWatch(SETTINGS)
    watch.attend(CARD, "", 0.0)
    watch.watch(60.0)
    assert not watch.status.stalled
    effects = watch.watch(SETTINGS.loading_max_s)
    assert [e for e in effects if isinstance(e, KillTrainer)]
    assert not [e for e in watch.watch(SETTINGS.loading_max_s + 1) if isinstance(e, KillTrainer)]


def test_a_stalled_trainer_is_killed_only_after_the_long_bound() -> None:
    watch = training()
    watch.watch(2.0)
    assert not [e for e in watch.watch(2.0 + SETTINGS.stall_kill_s - 1) if isinstance(e, KillTrainer)]
    assert [e for e in watch.watch(2.0 + SETTINGS.stall_kill_s) if isinstance(e, KillTrainer)]


def test_a_crash_is_answered_by_restarts_with_waits_and_then_by_standing_by() -> None:
    watch, now, waits = TrainerWatch(SETTINGS), 0.0, []
    watch.attend(CARD, "", now)
    for _ in range(SETTINGS.restarts_max):
        assert "started again" in watch.exited(RUN, "killed by signal 9", now)
        died_at = now
        while not watch.attend(CARD, "", now):
            now += 0.05
        waits.append(now - died_at)
    assert waits[0] >= SETTINGS.restart_s - 0.01
    assert waits[-1] > waits[0]
    watch.exited(RUN, "killed by signal 9", now)
    assert watch.attend(CARD, "", now + 1000) == []
    assert "crashed 5 times: killed by signal 9" in watch.gave_up(RUN)
    assert watch.deadline(now + 1000) is None


def test_a_trainer_that_still_loads_is_not_waited_for() -> None:
    watch = TrainerWatch(SETTINGS)
    watch.attend(CARD, "", 0.0)
    assert watch.attend(None, "the run is cancelled", 1.0) == [KillTrainer(RUN, "the run is cancelled")]
    assert watch.exited(RUN, "killed by SIGKILL", 1.1) == ""


def test_a_trainer_is_stopped_once_and_what_it_says_then_is_ignored() -> None:
    watch = training()
    effects = watch.attend(None, "the run is finished", 1.0)
    assert orders(effects, LeaveWorld) != []
    assert effects[-1] == StopTrainer(RUN, "the run is finished")
    assert watch.attend(None, "the run is finished", 2.0) == []
    watch.reported(RUN, RunFinished(RUN, 100, 100), 2.0)
    assert state(watch) is TrainerState.NONE
    assert watch.exited(RUN, "exit code 0", 2.1) == ""


def test_without_a_reason_a_loaded_trainer_is_kept() -> None:
    watch = training()
    assert watch.attend(None, "", 1.0) == []
    assert state(watch) is TrainerState.TRAINING


def test_a_failed_job_says_where_and_what_to_do() -> None:
    watch = training()
    watch.reported(RUN, RunFailed(RUN, "model.py:12", "division by zero", "Mend the line."), 1.0)
    assert state(watch) is TrainerState.FAILED
    assert watch.status.reason == "model.py:12: division by zero. Mend the line."
    watch.exited(RUN, "exit code 1", 1.1)
    assert state(watch) is TrainerState.FAILED


def test_what_cannot_be_written_is_told_to_all_until_it_is_written() -> None:
    watch = training()
    (note,) = watch.reported(RUN, DiskTrouble(RUN, "checkpoints are not written: no room"), 0.0)
    assert isinstance(note, Note)
    assert note.level is Level.WARNING
    watch.reported(RUN, Progress(generation(1), 9, 11, 100, 0, 0.5, 32, 0.1, (16, 16), 320.0), 0.0)
    assert watch.status.trouble == "checkpoints are not written: no room"
    assert state(watch) is TrainerState.TRAINING
    (note,) = watch.reported(RUN, DiskTrouble(RUN, ""), 0.0)
    assert isinstance(note, Note)
    assert note.level is Level.INFO
    assert watch.status.trouble == ""


def test_a_trainer_that_holds_what_its_disk_held_has_nothing_to_lose() -> None:
    watch = TrainerWatch(SETTINGS)
    watch.attend(CARD, "", 0.0)
    watch.reported(RUN, TrainerReady(RUN, CAPACITY, "same", 9, 8, 100, 10), 0.0)
    assert watch.fresh
    watch.enter(plan(1, (1, 2)))
    assert not watch.fresh
    watch.reported(RUN, WorldBroken(generation(1), 11, 10, False, "closed by peer"), 0.0)
    assert not watch.fresh
