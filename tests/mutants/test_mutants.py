"""How mutants are judged and told."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from mutants.__main__ import Report, tell
from mutants.skeleton import skeleton
from mutants.trial import Verdict, change, passes

BEFORE = """
@dataclass(frozen=True, order=True)
class A:
    b: int | None = 3

    def c(self, d: str | None) -> bool | None:
        return self.b > 2 and bool(f"{d} is {self.b + 1}")
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int | None", "int + None"),
        ("bool | None", "bool - None"),
        ("self.b + 1", "self.b - 1"),
        ("frozen=True", "frozen=False"),
    ],
)
def test_a_change_of_annotations_or_wording_is_no_mutant(old: str, new: str) -> None:
    assert skeleton(BEFORE.replace(old, new)) == skeleton(BEFORE)


@pytest.mark.parametrize(
    ("old", "new"), [("> 2", ">= 2"), ("= 3", "= 4"), ("and", "or"), ("order=True", "order=False")]
)
def test_a_change_of_what_is_done_is_one(old: str, new: str) -> None:
    assert skeleton(BEFORE.replace(old, new)) != skeleton(BEFORE)


def test_a_command_that_fails_or_takes_too_long_does_not_pass(tmp_path: Path) -> None:
    assert passes([sys.executable, "-c", "pass"], tmp_path, 30.0)
    assert not passes([sys.executable, "-c", "raise SystemExit(3)"], tmp_path, 30.0)
    started = time.monotonic()
    assert not passes([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path, 0.5)
    assert time.monotonic() - started < 20.0


def test_survivors_are_told_with_what_was_changed(capsys: pytest.CaptureFixture[str]) -> None:
    verdicts = {
        name: Verdict(name, by, 1.0, "-a > b\n+a >= b") for name, by in [("one", "simulator"), ("two", "")]
    }
    assert tell(Report("code", 2, verdicts)) == 1
    told = capsys.readouterr().out
    assert "survived: two\n-a > b\n+a >= b" in told
    assert "1 of 2 killed (50.0%), 0 of the sample not tried yet" in told


def test_an_unfinished_sample_is_no_success() -> None:
    assert tell(Report("code", 2, {"one": Verdict("one", "simulator", 1.0, "")})) == 1
    assert tell(Report("code", 1, {"one": Verdict("one", "simulator", 1.0, "")})) == 0


def test_a_change_is_told_by_its_lines() -> None:
    assert change("a\nb\nc", "a\nB\nc") == "-b\n+B"
