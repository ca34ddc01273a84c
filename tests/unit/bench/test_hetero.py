"""The speeds that the benchmark tells are those of the marks, and its page tells what its JSON says."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest

from bench import page, report
from bench.hetero import growth, models
from bench.hetero.journals import JournalTail
from bench.hetero.marks import Mark, Window, median_step_s, ratio, samples_per_s, together
from bench.hetero.mixes import CHAIN, EVEN, HAND, MIXES, SOLO, compared, divided, halved
from bench.hetero.result import Found, missed, result
from bench.hetero.to_loss import seconds_to


def steady(step_s: float, samples: int, count: int = 100) -> list[Mark]:
    return [Mark(100.0 + step_s * number, samples * number) for number in range(count)]


def test_a_speed_counts_whole_steps_only() -> None:
    marks = steady(0.7, 14)
    assert samples_per_s(marks, Window(101.0, 111.0)) == pytest.approx(20.0)
    assert samples_per_s(marks, Window(101.0, 102.2)) == pytest.approx(20.0)  # two marks
    with pytest.raises(ValueError, match=r"1 steps in 0\.5 s"):
        samples_per_s(marks, Window(101.0, 101.5))


def test_trainings_side_by_side_are_summed() -> None:
    window = Window(100.0, 120.0)
    assert together([steady(0.5, 10), steady(1.0, 10)], window) == pytest.approx(30.0)


def test_steps_after_a_change_are_counted_from_the_one_under_way() -> None:
    marks = steady(1.0, 1, 11) + [Mark(110.0 + 3.0 * number, 10 + number) for number in range(1, 60)]
    assert median_step_s(marks, 109.5, 11, 40) == pytest.approx(3.0)
    assert median_step_s(marks, 100.5, 1, 10) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="59 steps since, 60 wanted"):
        median_step_s(marks, 110.5, 11, 60)


def test_a_ratio_is_of_rounds_and_not_of_medians() -> None:
    assert ratio([10.0, 20.0, 30.0], [10.0, 10.0, 60.0]) == 1.0


@pytest.mark.parametrize("mix", MIXES, ids=lambda mix: str(mix.name))
def test_a_batch_is_divided_whole_and_by_speed(mix: Any) -> None:
    by_hand, evenly = mix.by_hand(546), mix.evenly(546)
    assert sum(by_hand) == sum(evenly) == 546
    assert max(evenly) - min(evenly) <= 1
    cpus = list(mix.cpus.values())
    assert [share / by_hand[-1] for share in by_hand] == pytest.approx(
        [each / cpus[-1] for each in cpus], rel=0.03
    )
    assert sum(cpus) < 2


def test_what_is_left_of_a_batch_goes_to_the_first_ones() -> None:
    assert divided(10, [1, 1, 1]) == [4, 3, 3]
    assert divided(7, [4, 2, 1]) == [4, 2, 1]


@pytest.mark.parametrize(("count", "width"), growth.WIDTHS.items())
def test_models_have_the_parameters_that_they_are_called_by(count: str, width: int) -> None:
    wanted = float(count.replace("k", "e3").replace("M", "e6"))
    assert models.parameters(growth.INPUTS, width) == pytest.approx(wanted, rel=0.07)


def test_a_journal_is_read_as_it_grows_and_the_newest_run_counts(tmp_path: Path) -> None:
    def line(step: int, size: int) -> str:
        return json.dumps({"step": step, "samples": 8, "at": 100.0 + step, "world": {"size": size}}) + "\n"

    tail = JournalTail(tmp_path, lambda each: bool(each["world"]["size"] == 2))
    assert tail.marks() == []
    first = tmp_path / "runs" / "a" / "metrics.jsonl"
    first.parent.mkdir(parents=True)
    first.write_text(line(1, 1) + line(2, 2) + line(3, 2)[:20])
    assert tail.marks() == [Mark(102.0, 16)]
    first.write_text(line(1, 1) + line(2, 2) + line(3, 2))
    assert tail.marks() == [Mark(102.0, 16), Mark(103.0, 24)]
    second = tmp_path / "runs" / "b" / "metrics.jsonl"
    second.parent.mkdir()
    second.write_text(line(1, 2))
    os.utime(first, (1.0, 1.0))
    assert tail.marks() == [Mark(101.0, 8)]


def test_the_way_to_a_loss_is_of_the_run_that_was_asked_for() -> None:
    def step(at: float) -> dict[str, Any]:
        return {"samples": 8, "step_s": 0.5, "at": at}

    def evaluation(at: float, loss: float | None) -> dict[str, Any]:
        return {"evaluation": {"loss": loss}, "at": at}

    old = [step(10.0), evaluation(11.0, 0.01)]
    lines = [*old, step(20.5), evaluation(21.0, None), evaluation(22.0, 0.3), step(23.0)]
    assert seconds_to(lines, 15.0, 0.2) is None
    assert seconds_to([*lines, evaluation(24.0, 0.2)], 15.0, 0.2) == pytest.approx(4.0)
    assert seconds_to(old, 15.0, 0.2) is None


def found(chain: float = 100.0) -> Found:
    first, second = (
        compared(
            mix,
            {
                SOLO: [100.0, 101.0, 99.0],
                EVEN: [40.0, 40.0, 40.0],
                HAND: [90.0, 90.0, 90.0],
                CHAIN: [chain, chain, chain],
            },
        )
        | {"shares": [1, 2]}
        for mix in MIXES
    )
    first["after_halving"] = halved([60.0, 70.0, 65.0], [70.0, 70.0]) | {"cpus": [0.8, 0.4]}
    one = {
        name: {"ratio": 0.98, "batch": 64, "plain_step_ms": 5.0, "more_ms_a_step": 0.1}
        for name in ("5ms", "1ms", "granules_5ms")
    }
    return Found(
        mixes={MIXES[0].name: first, MIXES[1].name: second},
        one=one,
        growth={
            "nodes": growth.grown({"2": 19.0, "1": 10.0}),
            "parameters": {"10k": growth.paid(10_666, 300.0, 400.0)},
        },
        idle={"agent_rss_mb": 60.0, "agent_cpu_percent": 0.5},
        loss={"digits": {"held_out_loss": 0.2, "chain_s": 3.0, "best_alone_s": 2.0, "speed_up": 0.67}},
    )


KEYS = (
    "speeds",
    "efficiency",
    "vs_even_split",
    "vs_hand_tuned",
    "after_halving",
    "one_node_ratio_5ms",
    "one_node_ratio_1ms",
    "agent_rss_mb",
    "agent_cpu_percent",
    "growth",
)


def test_the_result_tells_what_was_found() -> None:
    told = result(found())
    assert set(KEYS) <= set(told)
    assert told["efficiency"] == 1.0
    assert told["vs_even_split"] == 2.5
    assert told["after_halving"] == pytest.approx(65 / 70, abs=1e-3)
    assert told["growth"]["nodes"]["2"] == {"samples_per_s": 19.0, "speed_up": 1.9, "efficiency": 0.95}
    assert list(told["growth"]["nodes"]) == ["1", "2"]
    assert missed(told) == []


def test_what_is_missed_is_said_in_the_table_and_at_the_end() -> None:
    told = result(found(chain=85.0))
    assert told["efficiency"] < 0.9
    assert len(missed(told)) == 1
    text = page.page(told, None)
    assert "| samples/s at 4:2:1 over the sum of the solo speeds | >= 0.90 | 0.85 | **missed** |" in text
    slow = copy.deepcopy(told) | {"agent_rss_mb": 90.0, "agent_cpu_percent": 2.0, "after_halving": 0.5}
    assert len(missed(slow)) == 4


def test_steps_too_short_for_the_promise_are_said() -> None:
    told = result(found())
    told["speeds"][MIXES[0].name]["step_ms"] = 60.0
    assert "60 ms" in missed(told)[0]


def test_the_page_tells_date_and_machine_and_names_neither_host_nor_folder() -> None:
    told = result(found())
    text = page.page(told, None)
    assert told["date"] in text
    assert f"{told['machine']['cores']} cores" in text
    assert str(report.ROOT) not in text
    assert page.page(told, None) == text


@pytest.mark.parametrize("quick", [True, False])
def test_a_quick_run_leaves_the_kept_page_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: bool
) -> None:
    monkeypatch.setattr(report, "ROOT", tmp_path)
    monkeypatch.setattr(report, "BUILD", tmp_path / "build")
    monkeypatch.setattr(page, "PAGE", tmp_path / "docs" / "BENCHMARKS.md")
    for folder in ("build", "docs"):
        (tmp_path / folder).mkdir()
    assert page.main() == 2
    (tmp_path / "build" / "hetero.json").write_text(json.dumps(result(found()) | {"quick": quick}))
    assert page.main() == 0
    assert (tmp_path / "docs" / "BENCHMARKS.md").exists() is not quick
    assert (tmp_path / "build" / "BENCHMARKS.md").exists() is quick
