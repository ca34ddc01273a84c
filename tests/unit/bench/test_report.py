"""What a benchmark leaves behind."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from bench import report


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(number) for number in range(20, 0, -1)]
    assert report.percentile(values, 50) == 10.0
    assert report.percentile(values, 95) == 19.0
    assert report.percentile([3.0], 95) == 3.0
    assert report.spread([0.1234, 0.5678]) == {"p50_s": 0.123, "p95_s": 0.568}
    with pytest.raises(ValueError, match="no values"):
        report.percentile([], 95)


@pytest.mark.parametrize("keep", [True, False])
def test_a_result_is_written_and_kept_by_its_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    monkeypatch.setattr(report, "BUILD", tmp_path / "build")
    monkeypatch.setattr(report, "KEPT", tmp_path / "docs")
    written = report.publish("storm", {"seed": 3}, keep=keep)
    assert written == tmp_path / "build" / "storm.json"
    assert json.loads(written.read_text()) == {"seed": 3}
    copy = tmp_path / "docs" / f"{date.today().isoformat()}-storm.json"
    assert copy.exists() is keep


@pytest.mark.parametrize(("value", "short"), [("1", True), ("0", False), ("", False)])
def test_a_run_is_quick_when_asked_to_be(monkeypatch: pytest.MonkeyPatch, value: str, short: bool) -> None:
    monkeypatch.setenv("QUICK", value)
    assert report.quick() is short


def test_the_machine_is_described_and_not_named() -> None:
    facts = report.machine()
    assert facts["cores"] > 0
    assert facts["torch"] is not None
    assert set(facts) == {"cores", "memory_gib", "architecture", "system", "python", "torch"}


def test_a_table_names_its_rows_first(capsys: pytest.CaptureFixture[str]) -> None:
    report.show(
        "Recovery",
        ["fault", "p95"],
        [["sigkill", report.seconds(0.254)], ["cut", report.seconds(None)]],
        ["a note"],
    )
    printed = capsys.readouterr().out
    assert "0.25 s" in printed
    assert "none" in printed
    assert printed.rstrip().endswith("a note")
