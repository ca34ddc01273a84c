"""A soak remembers what it saw, as long as the code is the same, and tells it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from simulation.scenario import WIDE, draw
from soak.__main__ import report
from soak.record import Record, Seen, digest_of, resume
from soak.run import look, replay


def test_a_later_sitting_goes_on_where_an_earlier_one_stopped(tmp_path: Path) -> None:
    path = tmp_path / "soak" / "state.json"
    record = Record("the code")
    record.add([Seen(4, 3, 1.5, 0.1), Seen(5, 2, 0.0, 0.1, "seed 5: it fell")])
    record.write(path)
    again = resume(path, "the code")
    assert again.seeds == record.seeds
    assert [seen.seed for seen in again.failures()] == [5]


def test_what_was_seen_with_other_code_counts_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    Record("the code", {4: Seen(4, 3, 1.5, 0.1)}).write(path)
    assert resume(path, "other code").seeds == {}
    path.write_bytes(b'{"torn')
    assert resume(path, "the code").seeds == {}


def test_a_changed_file_makes_other_code(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("a = 1")
    before = digest_of([tmp_path])
    (tmp_path / "test_one.py").write_text("assert True")
    assert digest_of([tmp_path]) == before
    (tmp_path / "one.py").write_text("a = 2")
    assert digest_of([tmp_path]) != before


def test_the_report_tells_the_pace_the_times_and_how_to_replay_what_broke() -> None:
    record = Record("the code")
    record.add([Seen(0, 2, 1.0, 0.2), Seen(1, 4, 3.0, 0.3), Seen(2, 4, 0.0, 0.5, "seed 2 at 1 s: two lead")])
    text = "\n".join(report(record, range(4), 3, 2.0))
    assert "3 of 4 seeds, 1 broke a promise" in text
    assert "3 seeds in 2 s, 1.5 seeds/s" in text
    assert "p50 3.00 s" in text and "max 3.00 s" in text
    assert "seed 2 at 1 s: two lead\n  make soak SEED=2" in text


def test_a_worker_looks_until_its_time_is_over() -> None:
    (seen,) = look([0], time.monotonic() + 60)
    assert (seen.seed, seen.nodes, seen.broken) == (0, draw(0, WIDE).plan.nodes, "")
    assert look([0, 1], time.monotonic()) == []


def test_a_crash_of_the_core_is_a_failure_of_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(_: object) -> object:
        raise KeyError("a node")

    monkeypatch.setattr("soak.run.play", crash)
    (seen,) = look([6], time.monotonic() + 60)
    assert seen.broken == "seed 6: KeyError: 'a node'"


def test_a_sound_seed_has_no_story() -> None:
    assert replay(0) == ""
