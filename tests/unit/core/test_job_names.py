from __future__ import annotations

from dataclasses import replace

from daisychain.core.ids import RunId
from daisychain.core.job_names import called, labels
from daisychain.core.jobs import JobState
from unit.core.chains import CARD, RUN

OTHER = replace(CARD, run_id=RunId("ffff-1"), digest="f" * 64)


def test_a_job_is_called_by_its_folder_and_two_of_one_name_by_their_digests_too() -> None:
    assert labels([CARD]) == {RUN: "digits"}
    assert labels([OTHER, CARD]) == {RUN: "digits@dddddd", OTHER.run_id: "digits@ffffff"}
    again = replace(CARD, run_id=RunId("aaaa-2"))
    assert set(labels([CARD, again]).values()) == {"digits"}, "two runs of one job"


def test_what_has_ended_makes_no_name_ambiguous() -> None:
    before = replace(OTHER, state=JobState.WITHDRAWN)
    assert set(labels([CARD, before]).values()) == {"digits"}


def test_a_person_may_say_the_name_the_longer_name_or_the_run() -> None:
    assert called([CARD, OTHER], "digits") == [CARD, OTHER]
    assert called([CARD, OTHER], "digits@ffffff") == [OTHER]
    assert called([CARD, OTHER], RUN) == [CARD]
    assert called([CARD, OTHER], "digit") == []
