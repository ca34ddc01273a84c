"""A story of a broken promise is shortened, and stays a story of a broken promise."""

from __future__ import annotations

from simulation.scenario import WIDE, draw, play
from simulation.shrink import broken, shrink
from simulation.test_can_fail import forgetful


def test_a_broken_scenario_is_shortened_to_what_it_takes() -> None:
    scenario = draw(7, {6: 1})
    violation = broken(scenario, forgetful)
    assert violation is not None
    shorter, again = shrink(scenario, violation, forgetful)
    assert (shorter.plan.nodes, shorter.strikes, shorter.left_alone_s) == (2, (), 0.0)
    assert "on its disk" in str(again) and "seed 7" in str(again)


def test_a_sound_scenario_breaks_nothing() -> None:
    assert broken(draw(7, {2: 1})) is None


def test_a_scenario_is_told_by_all_that_it_takes_to_replay_it() -> None:
    scenario = draw(3, WIDE)
    assert all(str(blow) in str(scenario) for blow in scenario.strikes)
    assert play(scenario) == play(draw(3, WIDE))
