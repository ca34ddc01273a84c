"""The storm is drawn from its seed alone, and its samples are those of the record."""

from __future__ import annotations

import pytest

from bench.storm import rate
from bench.storm_faults import KINDS, LEFT_OUT, draw
from rig.matrix import Fault


def test_a_seed_draws_one_storm_in_which_every_kind_comes_before_any_comes_again() -> None:
    gusts = draw(7, 600.0, 72.0, 4)
    assert gusts == draw(7, 600.0, 72.0, 4) != draw(8, 600.0, 72.0, 4)
    assert len(gusts) == 12
    assert {gust.fault for gust in gusts} == set(KINDS)
    assert [gust.at_s for gust in gusts] == sorted(gust.at_s for gust in gusts)
    assert all(0 <= gust.at_s <= 585.0 and gust.victim in range(4) for gust in gusts)


@pytest.mark.parametrize("seconds", [60.0, 61.0, 600.0, 3600.0])
def test_there_are_never_fewer_faults_an_hour_than_asked_for(seconds: float) -> None:
    assert len(draw(1, seconds, 60.0, 4)) / seconds * 3600 >= 60.0


def test_every_kind_of_the_rig_blows_or_is_left_out_with_a_reason() -> None:
    assert set(KINDS) | set(LEFT_OUT) == set(Fault)
    assert not set(KINDS) & set(LEFT_OUT)


def test_samples_are_counted_by_the_times_of_their_commits() -> None:
    lines = [{"step": n, "samples": 48, "at": 100.0 + n} for n in range(20)] + [
        {"evaluation": {}, "at": 105.0}
    ]
    assert rate(lines, 105.0, 115.0) == 48.0
