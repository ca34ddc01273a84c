"""The story of a demo: what counts as recovery, and whose shares are told."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from daisychain.cli.demo.screen import report_lines
from daisychain.cli.demo.story import DemoReport, Fault, first_shares, recovery_s
from daisychain.trainer.record.journal import StepLine, WorldInfo


def line(step: int, generation: str, at: float, shares: tuple[int, ...] = (64, 64)) -> StepLine:
    world = WorldInfo(generation=generation, size=len(shares), coordinator="ada", shares=shares)
    return StepLine(step=step, epoch=0, loss=1.0, samples=sum(shares), step_s=0.01, world=world, at=at)


FAULT = Fault(name="ada", role="coordinator", at=100.0, generation="1.1", step=10)


GOOD = DemoReport(
    completed=True,
    job="digits",
    nodes_started=3,
    generations=("1.1", "2.1"),
    world_sizes=(3, 2),
    committed_steps=10,
    samples_lost=0,
    samples_repeated=0,
    coordinator_changes=1,
    killed="ada (coordinator)",
    recovery_s=0.25,
    accuracy=0.97,
    loss=0.1,
    shares={"ada": 64, "bob": 64},
    survivors_equal=True,
    bit_identical=None,
    max_relative_difference=None,
    train_s=5.0,
)


def test_recovery_is_counted_to_the_first_step_of_a_newer_world() -> None:
    lines = [line(9, "1.1", 99.0), line(10, "2.1", 100.4), line(11, "2.1", 100.5)]
    assert recovery_s(lines, FAULT) == pytest.approx(0.4)


def test_a_step_that_the_broken_world_still_committed_is_no_recovery() -> None:
    lines = [line(9, "1.1", 99.0), line(10, "1.1", 100.01), line(11, "2.1", 100.9)]
    assert recovery_s(lines, FAULT) == pytest.approx(0.9)


def test_without_a_later_step_there_is_no_recovery() -> None:
    assert recovery_s([line(9, "1.1", 99.0), line(10, "1.1", 100.01)], FAULT) is None


def test_shares_are_those_of_the_first_worlds_last_full_step() -> None:
    lines = [
        line(1, "1.1", 1.0, (64, 64)),
        line(2, "1.1", 2.0, (100, 28)),
        line(3, "1.1", 3.0, (10, 5)),  # an epoch's smaller last batch
        line(4, "2.1", 4.0, (128,)),
    ]
    assert first_shares(lines, ["ada", "bob"]) == {"ada": 100, "bob": 28}


def test_a_demo_proves_nothing_when_it_lost_its_way() -> None:
    assert GOOD.proven
    assert replace(GOOD, bit_identical=True).proven
    assert not replace(GOOD, completed=False).proven
    assert not replace(GOOD, recovery_s=None).proven
    assert not replace(GOOD, bit_identical=False).proven


@pytest.mark.parametrize(
    ("report", "told"),
    [
        (GOOD, "0 lost, 0 repeated"),
        (replace(GOOD, samples_lost=7), "7 lost"),
        (replace(GOOD, recovery_s=None), "next committed step after never"),
        (replace(GOOD, bit_identical=True, max_relative_difference=0.0), "the same file, bit for bit"),
        (replace(GOOD, bit_identical=False, max_relative_difference=0.5), "5.0e-01"),
        (replace(GOOD, accuracy=None), "loss        0.1"),
        (replace(GOOD, completed=False), "not completed"),
    ],
)
def test_the_report_tells_it_in_words(report: DemoReport, told: str) -> None:
    shown = io.StringIO()
    console = Console(file=shown, width=120)
    for text in report_lines(report):
        console.print(text)
    assert told in shown.getvalue()
