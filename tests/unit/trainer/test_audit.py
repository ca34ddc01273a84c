"""The audit counts what the record says against what the sampler says, and finds every difference."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from daisychain.trainer.engine.timeline import Timeline
from daisychain.trainer.record.audit import audit
from daisychain.trainer.record.journal import Evaluation, EvaluationLine, Line, StepLine, WorldInfo

RUN = Timeline(steps=6, steps_per_epoch=3, samples=10, batch=4, interval=0, evaluates=False)
"""Two epochs of ten samples in batches of four."""

SAMPLES = {1: 4, 2: 4, 3: 2, 4: 4, 5: 4, 6: 2}
"""What each step of it must take; a step beyond its end is as large as another."""


def line(step: int, samples: int | None = None, world: str = "1.1", at: float = 0.0) -> StepLine:
    coordinator = f"node-{world[0]}"
    info = WorldInfo(generation=world, size=int(world[-1]), coordinator=coordinator, shares=(step,))
    size = SAMPLES.get(step, 4) if samples is None else samples
    return StepLine(step=step, epoch=0, loss=0.5, samples=size, step_s=0.5, world=info, at=at)


def test_a_whole_run_is_clean() -> None:
    record: list[Line] = [line(step) for step in range(1, 7)]
    record.insert(3, EvaluationLine(step=3, evaluation=Evaluation(0.5, {})))
    found = audit(record, RUN)
    assert found.clean
    assert (found.steps_expected, found.steps_committed) == (6, 6)
    assert (found.samples_expected, found.samples_committed) == (20, 20)


def test_a_step_left_out_loses_its_samples() -> None:
    found = audit([line(step) for step in (1, 2, 4, 5, 6)], RUN)
    assert (found.samples_lost, found.samples_repeated, found.clean) == (2, 0, False)


def test_a_step_done_twice_repeats_its_samples() -> None:
    found = audit([line(step) for step in (1, 2, 2, 3, 4, 5, 6)], RUN)
    assert (found.samples_lost, found.samples_repeated, found.clean) == (0, 4, False)


def test_a_step_beyond_the_end_is_repeated_samples() -> None:
    assert audit([line(step) for step in range(1, 8)], RUN).samples_repeated == 4


def test_a_short_batch_loses_samples() -> None:
    found = audit([line(1, samples=3), *(line(step) for step in range(2, 7))], RUN)
    assert (found.samples_lost, found.samples_repeated) == (1, 0)


def test_an_early_stop_expects_no_more() -> None:
    assert audit([line(1), line(2)], RUN, ended_at_step=2).clean
    assert audit([line(1), line(2)], RUN).samples_lost == 12


def test_worlds_are_told_with_their_pauses() -> None:
    record = [
        line(1, at=10.0),
        line(2, at=10.5),
        line(3, world="2.3", at=12.0),
        line(4, world="2.3", at=12.5),
    ]
    found = audit(record, RUN, ended_at_step=4)
    assert [(w.generation, w.size, w.coordinator, w.first_step, w.last_step) for w in found.worlds] == [
        ("1.1", 1, "node-1", 1, 2),
        ("2.3", 3, "node-2", 3, 4),
    ]
    assert [w.pause_s for w in found.worlds] == [0.0, 1.0]
    assert (found.worlds[0].first_shares, found.worlds[0].last_shares) == ((1,), (2,))
    assert found.coordinator_changes == 1


@given(st.lists(st.integers(1, 8), max_size=20))
def test_lost_and_repeated_are_exactly_the_difference(steps: list[int]) -> None:
    found = audit([line(step) for step in steps], RUN)
    counts = Counter(steps)
    lost = sum(SAMPLES.get(step, 4) for step in range(1, 7) if not counts[step])
    repeated = sum(SAMPLES.get(step, 4) * (count - (1 if step <= 6 else 0)) for step, count in counts.items())
    assert (found.samples_lost, found.samples_repeated) == (lost, repeated)
