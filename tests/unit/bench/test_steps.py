"""What a trial reads out of the records of committed steps."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bench.steps import StepLine, join, next_after, recovery_s


def steps(*worlds: tuple[str, int, Sequence[float]]) -> list[StepLine]:
    """Return steps of 0.1 s committed at the given times, world by world: (name, size, times)."""
    lines: list[StepLine] = []
    for world, size, times in worlds:
        lines += [StepLine(at, len(lines) + n + 1, size, world, 0.1) for n, at in enumerate(times)]
    return lines


def test_the_next_step_is_one_of_another_world() -> None:
    record = steps(("1.1", 3, [1.0, 1.1, 1.2]), ("1.2", 2, [1.6, 1.7]))
    found = next_after(record, 1.15)  # the broken world committed one more, on its way to break
    assert found is not None
    assert (found.world, found.at) == ("1.2", 1.6)
    assert next_after(record[:3], 1.15) is None


def test_a_recovery_lasts_until_every_survivor_went_on() -> None:
    first = steps(("1.1", 3, [1.0]), ("1.2", 2, [1.5]))
    second = steps(("1.1", 3, [1.0]), ("1.2", 2, [1.7]))
    assert recovery_s([first, second], 1.2) == pytest.approx(0.5)
    assert recovery_s([first, second[:1]], 1.2) is None


def test_a_join_is_told_by_a_member_that_was_there_before() -> None:
    record = steps(("1.2", 2, [4.8, 4.9, 5.0]), ("1.3", 3, [5.3, 5.4]))
    came = join(record, 3, started_at=2.0, ready_at=4.95)
    assert came is not None
    assert (came.took_s, came.pause_s, came.start_to_first_step_s) == pytest.approx((0.35, 0.2, 3.3))
    assert join(record[:3], 3, started_at=2.0, ready_at=4.95) is None
