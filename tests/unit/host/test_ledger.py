"""A run that ended is remembered as ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from daisychain.core.ids import RunId
from daisychain.core.jobs import JobCard, JobState
from daisychain.host.ledger import LEDGER_MAX_CARDS, Ledger, run_id_of, submission_of

DIGEST = "d" * 64
CARD = JobCard(run_id_of(DIGEST, 1), "digits", DIGEST, 100.0)


def test_the_end_of_a_run_survives_a_restart(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.json")
    ended = replace(CARD, state=JobState.FAILED, reason="data.csv: no column 'y'")
    ledger.record(ended)
    assert Ledger(tmp_path / "ledger.json").card(CARD.run_id) == ended


def test_an_ended_run_never_becomes_unended(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.json")
    ledger.record(replace(CARD, state=JobState.CANCELLED))
    ledger.record(replace(CARD, state=JobState.RUNNING))
    known = ledger.card(CARD.run_id)
    assert known is not None
    assert known.state is JobState.CANCELLED


def test_submissions_count_up_by_digest(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.json")
    assert ledger.last_submission(DIGEST) == 0
    ledger.record(CARD)
    ledger.record(replace(CARD, run_id=run_id_of(DIGEST, 12)))
    assert ledger.last_submission(DIGEST) == 12
    assert ledger.last_submission("e" * 64) == 0


def test_a_damaged_ledger_is_kept_and_named(tmp_path: Path) -> None:
    (tmp_path / "ledger.json").write_text("nonsense")
    ledger = Ledger(tmp_path / "ledger.json")
    assert ledger.cards() == ()
    assert "ledger.json.damaged-1" in ledger.problem
    assert (tmp_path / "ledger.json.damaged-1").read_text() == "nonsense"


def test_the_ledger_is_bounded_and_forgets_the_oldest_ended(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.json")
    full = {
        run_id_of(DIGEST, number): replace(
            CARD, run_id=run_id_of(DIGEST, number), submitted_at=float(number), state=JobState.FINISHED
        )
        for number in range(1, LEDGER_MAX_CARDS + 1)
    }
    ledger._cards = full
    ledger.record(replace(CARD, run_id=RunId("new-1"), submitted_at=1e9))
    assert len(ledger.cards()) == LEDGER_MAX_CARDS
    assert ledger.card(run_id_of(DIGEST, 1)) is None
    assert ledger.card(RunId("new-1")) is not None


def test_runs_that_never_ended_do_not_fill_it_for_ever(tmp_path: Path) -> None:
    """A job that is changed in mid-run leaves one behind each time."""
    ledger = Ledger(tmp_path / "ledger.json")
    ledger._cards = {
        RunId(f"{number}-1"): replace(CARD, run_id=RunId(f"{number}-1"), submitted_at=float(number))
        for number in range(LEDGER_MAX_CARDS)
    }
    ledger.record(replace(CARD, run_id=RunId("new-1"), submitted_at=1e9))
    assert len(ledger.cards()) == LEDGER_MAX_CARDS
    assert ledger.card(RunId("0-1")) is None


def test_foreign_run_ids_have_no_submission() -> None:
    assert submission_of(RunId("abc")) == 0
    assert submission_of(RunId("abc-x")) == 0
    assert submission_of(RunId("abc-99999999999999999999")) == 0
    assert submission_of(run_id_of(DIGEST, 3)) == 3
